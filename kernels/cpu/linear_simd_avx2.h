// What linear layers need beyond simd_avx2.h. Contract: linear_simd_avx512.h.
#pragma once

#include "kernels/cpu/simd_avx2.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

namespace headroom::kernels::cpu_avx2 {

static constexpr int kMaxQuantRows = 2;
static constexpr int QuantGroups(int /*rows*/) { return 1; }
// Rows up to which the sums of both bytes of the activations fit.
static constexpr int kSeparatePlaneRows = 1;
static constexpr int kUnpackedRows = 2;
static constexpr int kUnpackedGroups = 1;
static constexpr int kMaxFloatRows = 3;
static constexpr int FloatGroups(int rows) { return rows == 1 ? 2 : 1; }

HEADROOM_INLINE __m256i DotBytes8(__m256i acc, __m256i weights, __m256i a) {
  // Pairs stay below 2 * 63 * 128, so the saturating 16-bit sum is exact.
  const __m256i pairs = _mm256_maddubs_epi16(weights, a);
  return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
HEADROOM_INLINE I32x16 BroadcastBytes(const int8_t* a) {
  int32_t four;
  memcpy(&four, a, sizeof(four));
  return {_mm256_set1_epi32(four), _mm256_set1_epi32(four)};
}
HEADROOM_INLINE I32x16 DotNarrow(I32x16 acc, I32x16 weights, I32x16 a) {
  return {DotBytes8(acc.lo, weights.lo, a.lo), DotBytes8(acc.hi, weights.hi, a.lo)};
}
HEADROOM_INLINE I32x16 DotBytes(I32x16 acc, I32x16 weights, const int8_t* a) {
  return DotNarrow(acc, weights, BroadcastBytes(a));
}

HEADROOM_INLINE __m256i DotWideBytes8(__m256i acc, __m256i weights, __m256i a_even, __m256i a_odd) {
  const __m256i even = _mm256_and_si256(weights, _mm256_set1_epi16(0xff));
  const __m256i odd = _mm256_srli_epi16(weights, 8);
  acc = _mm256_add_epi32(acc, _mm256_madd_epi16(even, a_even));
  return _mm256_add_epi32(acc, _mm256_madd_epi16(odd, a_odd));
}
HEADROOM_INLINE I32x16 DotWide(I32x16 acc, I32x16 weights, I32x16 a) {
  const __m256i a_even = _mm256_srai_epi16(_mm256_slli_epi16(a.lo, 8), 8);
  const __m256i a_odd = _mm256_srai_epi16(a.lo, 8);
  return {DotWideBytes8(acc.lo, weights.lo, a_even, a_odd),
          DotWideBytes8(acc.hi, weights.hi, a_even, a_odd)};
}
HEADROOM_INLINE I32x16 DotWideBytes(I32x16 acc, I32x16 weights, const int8_t* a) {
  return DotWide(acc, weights, BroadcastBytes(a));
}

// The 32 bits at `bits` as 16 in each byte whose bit is set.
HEADROOM_INLINE __m256i SpreadFifthBits(const uint8_t* bits) {
  int32_t word;
  memcpy(&word, bits, sizeof(word));
  const __m256i byte_of_lane =
      _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(word), byte_of_lane);
  const __m256i bit_of_lane = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201u));
  const __m256i is_set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit_of_lane), bit_of_lane);
  return _mm256_and_si256(is_set, _mm256_set1_epi8(16));
}
HEADROOM_INLINE I32x16 OrFifthBits(I32x16 nibbles, const uint8_t* bits) {
  return {_mm256_or_si256(nibbles.lo, SpreadFifthBits(bits)),
          _mm256_or_si256(nibbles.hi, SpreadFifthBits(bits + 4))};
}

// Lane i = the largest lane of v[i].
HEADROOM_INLINE F32x16 ReduceMaxEach(const F32x16* v) {
  float largest[16];
  for (int i = 0; i < 16; ++i) {
    largest[i] = ReduceMax(v[i]);
  }
  return Load(largest);
}
// Lane i = the sum of the lanes of v[i], which must be exact in f32.
HEADROOM_INLINE I32x16 ReduceAddEach(const I32x16* v) {
  float sums[16];
  for (int i = 0; i < 16; ++i) {
    sums[i] = ReduceAdd(IntToFloat(v[i]));
  }
  return RoundToInt(Load(sums));
}

}  // namespace headroom::kernels::cpu_avx2

#endif
