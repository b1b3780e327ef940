// What linear layers need beyond simd_avx512.h, with VNNI. The same contract: equal bits in all
// three.
#pragma once

#include "kernels/cpu/simd_avx512.h"

#if defined(__AVX512F__) && defined(__AVX512VNNI__) && defined(__AVX512BF16__)

namespace headroom::kernels::cpu_avx512 {

// Largest tiles that fit in the registers: rows, and groups of 16 columns for that many rows.
static constexpr int kMaxQuantRows = 8;
static constexpr int QuantGroups(int rows) { return rows <= 4 ? 4 : 2; }
// Rows up to which the sums of both bytes of the activations fit.
static constexpr int kSeparatePlaneRows = 4;
static constexpr int kUnpackedRows = 6;
static constexpr int kUnpackedGroups = 2;
static constexpr int kMaxFloatRows = 6;
static constexpr int FloatGroups(int /*rows*/) { return 4; }

// acc + the dot product of each lane's four unsigned bytes with the four signed bytes at a. Written
// out because compilers otherwise load each broadcast apart and keep it in a register for its next
// use, which spills accumulators.
HEADROOM_INLINE I32x16 DotBytes(I32x16 acc, I32x16 weights, const int8_t* a) {
  struct FourBytes {
    int8_t v[4];
  };
  __asm__("vpdpbusd %2%{1to16%}, %1, %0"
          : "+v"(acc)
          : "v"(weights), "m"(*reinterpret_cast<const FourBytes*>(a)));
  return acc;
}
// The same for weights of any size; DotBytes may want them below 64.
HEADROOM_INLINE I32x16 DotWideBytes(I32x16 acc, I32x16 weights, const int8_t* a) {
  return DotBytes(acc, weights, a);
}
// The same with the four bytes at a in every lane.
HEADROOM_INLINE I32x16 BroadcastBytes(const int8_t* a) {
  int32_t four;
  memcpy(&four, a, sizeof(four));
  return _mm512_set1_epi32(four);
}
HEADROOM_INLINE I32x16 DotNarrow(I32x16 acc, I32x16 weights, I32x16 a) {
  return _mm512_dpbusd_epi32(acc, weights, a);
}
HEADROOM_INLINE I32x16 DotWide(I32x16 acc, I32x16 weights, I32x16 a) {
  return _mm512_dpbusd_epi32(acc, weights, a);
}
// Adds 16 to each byte whose bit is set in the 64-bit word at `bits`.
HEADROOM_INLINE I32x16 OrFifthBits(I32x16 nibbles, const uint8_t* bits) {
  uint64_t word;
  memcpy(&word, bits, sizeof(word));
  return _mm512_mask_add_epi8(nibbles, word, nibbles, _mm512_set1_epi8(16));
}
// Lane i = the largest lane of v[i]. Each step joins pairs of vectors: first inside 128-bit lanes,
// then across them.
HEADROOM_INLINE F32x16 ReduceMaxEach(const F32x16* v) {
  F32x16 a[8], b[4], c[2];
  for (int i = 0; i < 8; ++i) {
    a[i] = _mm512_max_ps(_mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]),
                         _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]));
  }
  for (int i = 0; i < 4; ++i) {
    const __m512d even = _mm512_castps_pd(a[2 * i]);
    const __m512d odd = _mm512_castps_pd(a[2 * i + 1]);
    b[i] = _mm512_max_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(even, odd)),
                         _mm512_castpd_ps(_mm512_unpackhi_pd(even, odd)));
  }
  for (int i = 0; i < 2; ++i) {
    c[i] = _mm512_max_ps(_mm512_shuffle_f32x4(b[2 * i], b[2 * i + 1], 0x88),
                         _mm512_shuffle_f32x4(b[2 * i], b[2 * i + 1], 0xdd));
  }
  return _mm512_max_ps(_mm512_shuffle_f32x4(c[0], c[1], 0x88),
                       _mm512_shuffle_f32x4(c[0], c[1], 0xdd));
}
// Lane i = the sum of the lanes of v[i].
HEADROOM_INLINE I32x16 ReduceAddEach(const I32x16* v) {
  I32x16 a[8], b[4], c[2];
  for (int i = 0; i < 8; ++i) {
    a[i] = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]),
                            _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]));
  }
  for (int i = 0; i < 4; ++i) {
    b[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(a[2 * i], a[2 * i + 1]),
                            _mm512_unpackhi_epi64(a[2 * i], a[2 * i + 1]));
  }
  for (int i = 0; i < 2; ++i) {
    c[i] = _mm512_add_epi32(_mm512_shuffle_i32x4(b[2 * i], b[2 * i + 1], 0x88),
                            _mm512_shuffle_i32x4(b[2 * i], b[2 * i + 1], 0xdd));
  }
  return _mm512_add_epi32(_mm512_shuffle_i32x4(c[0], c[1], 0x88),
                          _mm512_shuffle_i32x4(c[0], c[1], 0xdd));
}

}  // namespace headroom::kernels::cpu_avx512

#endif
