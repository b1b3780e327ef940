// AVX-512 (F, BW, DQ, VL, BF16): one 512-bit register per vector. Contract: simd_common.h.
#pragma once

#include "kernels/cpu/simd_common.h"

// Empty without the ISA, so that the header compiles alone.
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && \
    defined(__AVX512VL__) && defined(__AVX512BF16__)

#include <immintrin.h>
#include <string.h>

// GCC 12 takes the intrinsics' own undefined pass-through operands for mistakes (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace headroom::kernels::cpu_avx512 {

using F32x16 = __m512;
using I32x16 = __m512i;
using Bf16x32 = __m512bh;
struct I64x16 {
  __m512i lo, hi;
};

// Lanes [0, n), n in [0, 16].
HEADROOM_INLINE __mmask16 FirstLanes(int n) { return static_cast<__mmask16>((1u << n) - 1u); }

HEADROOM_INLINE F32x16 Zero() { return _mm512_setzero_ps(); }
HEADROOM_INLINE F32x16 Set1(float v) { return _mm512_set1_ps(v); }
HEADROOM_INLINE F32x16 Load(const float* p) { return _mm512_loadu_ps(p); }
HEADROOM_INLINE void Store(float* p, F32x16 v) { _mm512_storeu_ps(p, v); }
// Lanes n and above: not read (0), not written.
HEADROOM_INLINE F32x16 LoadFirst(const float* p, int n) {
  return _mm512_maskz_loadu_ps(FirstLanes(n), p);
}
HEADROOM_INLINE void StoreFirst(float* p, F32x16 v, int n) {
  _mm512_mask_storeu_ps(p, FirstLanes(n), v);
}

HEADROOM_INLINE F32x16 Add(F32x16 a, F32x16 b) { return _mm512_add_ps(a, b); }
HEADROOM_INLINE F32x16 Sub(F32x16 a, F32x16 b) { return _mm512_sub_ps(a, b); }
HEADROOM_INLINE F32x16 Mul(F32x16 a, F32x16 b) { return _mm512_mul_ps(a, b); }
HEADROOM_INLINE F32x16 Div(F32x16 a, F32x16 b) { return _mm512_div_ps(a, b); }
HEADROOM_INLINE F32x16 Sqrt(F32x16 a) { return _mm512_sqrt_ps(a); }
HEADROOM_INLINE F32x16 Abs(F32x16 a) { return _mm512_abs_ps(a); }
// a * b + c and c - a * b, rounded once.
HEADROOM_INLINE F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) { return _mm512_fmadd_ps(a, b, c); }
HEADROOM_INLINE F32x16 Fnma(F32x16 a, F32x16 b, F32x16 c) { return _mm512_fnmadd_ps(a, b, c); }
// a > b ? a : b and a < b ? a : b: b where either is NaN.
HEADROOM_INLINE F32x16 Max(F32x16 a, F32x16 b) { return _mm512_max_ps(a, b); }
HEADROOM_INLINE F32x16 Min(F32x16 a, F32x16 b) { return _mm512_min_ps(a, b); }

// Lanes below n from a, the others from b.
HEADROOM_INLINE F32x16 SelectFirst(int n, F32x16 a, F32x16 b) {
  return _mm512_mask_mov_ps(b, FirstLanes(n), a);
}
// x < y ? a : b.
HEADROOM_INLINE F32x16 SelectLess(F32x16 x, F32x16 y, F32x16 a, F32x16 b) {
  return _mm512_mask_mov_ps(b, _mm512_cmp_ps_mask(x, y, _CMP_LT_OQ), a);
}
// x is NaN ? a : b.
HEADROOM_INLINE F32x16 SelectNan(F32x16 x, F32x16 a, F32x16 b) {
  return _mm512_mask_mov_ps(b, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), a);
}

HEADROOM_INLINE I32x16 Set1I(int32_t v) { return _mm512_set1_epi32(v); }
HEADROOM_INLINE I32x16 LoadI(const int32_t* p) { return _mm512_loadu_si512(p); }
HEADROOM_INLINE void StoreI(int32_t* p, I32x16 v) { _mm512_storeu_si512(p, v); }
HEADROOM_INLINE I32x16 AddI(I32x16 a, I32x16 b) { return _mm512_add_epi32(a, b); }
HEADROOM_INLINE I32x16 SubI(I32x16 a, I32x16 b) { return _mm512_sub_epi32(a, b); }
HEADROOM_INLINE I32x16 MulI(I32x16 a, I32x16 b) { return _mm512_mullo_epi32(a, b); }
HEADROOM_INLINE I32x16 AndI(I32x16 a, I32x16 b) { return _mm512_and_si512(a, b); }
HEADROOM_INLINE I32x16 OrI(I32x16 a, I32x16 b) { return _mm512_or_si512(a, b); }
HEADROOM_INLINE I32x16 XorI(I32x16 a, I32x16 b) { return _mm512_xor_si512(a, b); }
template <int kBits>
HEADROOM_INLINE I32x16 ShiftLeft(I32x16 a) {
  return _mm512_slli_epi32(a, kBits);
}
// Logical.
template <int kBits>
HEADROOM_INLINE I32x16 ShiftRight(I32x16 a) {
  return _mm512_srli_epi32(a, kBits);
}

// To the nearest integer, ties to even; 0x80000000 where it does not fit.
HEADROOM_INLINE I32x16 RoundToInt(F32x16 a) { return _mm512_cvtps_epi32(a); }
HEADROOM_INLINE F32x16 IntToFloat(I32x16 a) { return _mm512_cvtepi32_ps(a); }
HEADROOM_INLINE I32x16 BitsOf(F32x16 a) { return _mm512_castps_si512(a); }
HEADROOM_INLINE F32x16 FloatOf(I32x16 a) { return _mm512_castsi512_ps(a); }

HEADROOM_INLINE I64x16 ZeroI64() { return {_mm512_setzero_si512(), _mm512_setzero_si512()}; }
HEADROOM_INLINE I64x16 LoadI64(const int64_t* p) {
  return {_mm512_loadu_si512(p), _mm512_loadu_si512(p + 8)};
}
HEADROOM_INLINE void StoreI64(int64_t* p, I64x16 v) {
  _mm512_storeu_si512(p, v.lo);
  _mm512_storeu_si512(p + 8, v.hi);
}
// acc + x to the nearest integer, ties to even; |x| <= 2^50.
HEADROOM_INLINE I64x16 AddRounded(I64x16 acc, F32x16 x) {
  return {_mm512_add_epi64(acc.lo, _mm512_cvtps_epi64(_mm512_castps512_ps256(x))),
          _mm512_add_epi64(acc.hi, _mm512_cvtps_epi64(_mm512_extractf32x8_ps(x, 1)))};
}

// Sixteen f16 or bf16 values as f32.
HEADROOM_INLINE F32x16 LoadF16(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
HEADROOM_INLINE F32x16 LoadBf16(const uint16_t* p) {
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}
// Sixteen values rounded to bf16, ties to even; denormals become zeros, NaNs quiet.
HEADROOM_INLINE void StoreBf16(uint16_t* p, F32x16 v) {
  const __m256bh halves = _mm512_cvtneps_pbh(v);
  memcpy(p, &halves, sizeof(halves));
}

// Rounded the same way, as f32.
HEADROOM_INLINE F32x16 RoundToBf16(F32x16 v) {
  const __m256i halves = (__m256i)_mm512_cvtneps_pbh(v);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

// Sixteen int8 values as f32.
HEADROOM_INLINE F32x16 LoadInt8(const int8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}
// The low bytes of sixteen lanes.
HEADROOM_INLINE void StoreInt8(int8_t* p, I32x16 v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(v));
}

// The odd or the even elements of sixteen pairs, as f32.
HEADROOM_INLINE F32x16 LoadOdd(const uint16_t* p) {
  const __m512i odd = _mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32(-0x10000));
  return _mm512_castsi512_ps(odd);
}
HEADROOM_INLINE F32x16 LoadEven(const uint16_t* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16));
}
HEADROOM_INLINE Bf16x32 LoadPairs(const uint16_t* p) {
  return (Bf16x32)_mm512_loadu_si512(p);
}
// One pair in every lane, read from p[0] and p[1].
HEADROOM_INLINE Bf16x32 BroadcastPair(const uint16_t* p) {
  int32_t bits;
  memcpy(&bits, p, sizeof(bits));
  return (Bf16x32)_mm512_set1_epi32(bits);
}
// The pairs with their odd elements zeroed.
HEADROOM_INLINE Bf16x32 KeepEven(Bf16x32 a) {
  return (Bf16x32)_mm512_and_si512((__m512i)a, _mm512_set1_epi32(0xffff));
}
// acc + odd elements' product, rounded, + even elements' product, rounded; denormal inputs and
// results are zeros whatever the control bits. Intel runs one every two cycles, a quarter of its
// rate of Fma; AMD as many as of Fma: see PreferBf16Dot.
HEADROOM_INLINE F32x16 DotBf16Pair(F32x16 acc, Bf16x32 a, Bf16x32 b) {
  return _mm512_dpbf16_ps(acc, a, b);
}

// Lane i meets i + 8, then i + 4, i + 2, i + 1.
HEADROOM_INLINE float ReduceAdd(F32x16 v) {
  const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_shuffle_ps(c, c, 1)));
}
HEADROOM_INLINE float ReduceMax(F32x16 v) {
  const __m256 a = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(c, _mm_shuffle_ps(c, c, 1)));
}

HEADROOM_INLINE void Prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
}

#include "kernels/cpu/simd_math.inc"

}  // namespace headroom::kernels::cpu_avx512

#endif
