// AVX2 with FMA and F16C: two 256-bit registers per vector. Contract: simd_common.h.
#pragma once

#include "kernels/cpu/simd_common.h"

// Empty without the ISA, so that the header compiles alone.
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include <immintrin.h>
#include <string.h>

namespace headroom::kernels::cpu_avx2 {

struct F32x16 {
  __m256 lo, hi;
};
struct I32x16 {
  __m256i lo, hi;
};
struct Bf16x32 {
  __m256i lo, hi;
};
struct I64x16 {
  __m256i q[4];
};

// All-ones in lanes [0, n) of eight lanes; n may lie outside [0, 8].
HEADROOM_INLINE __m256i FirstLanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

HEADROOM_INLINE F32x16 Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
HEADROOM_INLINE F32x16 Set1(float v) { return {_mm256_set1_ps(v), _mm256_set1_ps(v)}; }
HEADROOM_INLINE F32x16 Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
HEADROOM_INLINE void Store(float* p, F32x16 v) {
  _mm256_storeu_ps(p, v.lo);
  _mm256_storeu_ps(p + 8, v.hi);
}
// Lanes n and above: not read (0), not written.
HEADROOM_INLINE F32x16 LoadFirst(const float* p, int n) {
  return {_mm256_maskload_ps(p, FirstLanes(n)), _mm256_maskload_ps(p + 8, FirstLanes(n - 8))};
}
HEADROOM_INLINE void StoreFirst(float* p, F32x16 v, int n) {
  _mm256_maskstore_ps(p, FirstLanes(n), v.lo);
  _mm256_maskstore_ps(p + 8, FirstLanes(n - 8), v.hi);
}

HEADROOM_INLINE F32x16 Add(F32x16 a, F32x16 b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
HEADROOM_INLINE F32x16 Sub(F32x16 a, F32x16 b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
HEADROOM_INLINE F32x16 Mul(F32x16 a, F32x16 b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
HEADROOM_INLINE F32x16 Div(F32x16 a, F32x16 b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
HEADROOM_INLINE F32x16 Sqrt(F32x16 a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
HEADROOM_INLINE F32x16 Abs(F32x16 a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
// a * b + c and c - a * b, rounded once.
HEADROOM_INLINE F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
HEADROOM_INLINE F32x16 Fnma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
}
// a > b ? a : b and a < b ? a : b: b where either is NaN.
HEADROOM_INLINE F32x16 Max(F32x16 a, F32x16 b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
HEADROOM_INLINE F32x16 Min(F32x16 a, F32x16 b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}

// Lanes below n from a, the others from b.
HEADROOM_INLINE F32x16 SelectFirst(int n, F32x16 a, F32x16 b) {
  return {_mm256_blendv_ps(b.lo, a.lo, _mm256_castsi256_ps(FirstLanes(n))),
          _mm256_blendv_ps(b.hi, a.hi, _mm256_castsi256_ps(FirstLanes(n - 8)))};
}
// x < y ? a : b.
HEADROOM_INLINE F32x16 SelectLess(F32x16 x, F32x16 y, F32x16 a, F32x16 b) {
  return {_mm256_blendv_ps(b.lo, a.lo, _mm256_cmp_ps(x.lo, y.lo, _CMP_LT_OQ)),
          _mm256_blendv_ps(b.hi, a.hi, _mm256_cmp_ps(x.hi, y.hi, _CMP_LT_OQ))};
}
// x is NaN ? a : b.
HEADROOM_INLINE F32x16 SelectNan(F32x16 x, F32x16 a, F32x16 b) {
  return {_mm256_blendv_ps(b.lo, a.lo, _mm256_cmp_ps(x.lo, x.lo, _CMP_UNORD_Q)),
          _mm256_blendv_ps(b.hi, a.hi, _mm256_cmp_ps(x.hi, x.hi, _CMP_UNORD_Q))};
}

HEADROOM_INLINE I32x16 Set1I(int32_t v) { return {_mm256_set1_epi32(v), _mm256_set1_epi32(v)}; }
HEADROOM_INLINE I32x16 LoadI(const int32_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8))};
}
HEADROOM_INLINE void StoreI(int32_t* p, I32x16 v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), v.hi);
}
HEADROOM_INLINE I32x16 AddI(I32x16 a, I32x16 b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
HEADROOM_INLINE I32x16 SubI(I32x16 a, I32x16 b) {
  return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)};
}
HEADROOM_INLINE I32x16 MulI(I32x16 a, I32x16 b) {
  return {_mm256_mullo_epi32(a.lo, b.lo), _mm256_mullo_epi32(a.hi, b.hi)};
}
HEADROOM_INLINE I32x16 AndI(I32x16 a, I32x16 b) {
  return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
HEADROOM_INLINE I32x16 OrI(I32x16 a, I32x16 b) {
  return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
HEADROOM_INLINE I32x16 XorI(I32x16 a, I32x16 b) {
  return {_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)};
}
template <int kBits>
HEADROOM_INLINE I32x16 ShiftLeft(I32x16 a) {
  return {_mm256_slli_epi32(a.lo, kBits), _mm256_slli_epi32(a.hi, kBits)};
}
// Logical.
template <int kBits>
HEADROOM_INLINE I32x16 ShiftRight(I32x16 a) {
  return {_mm256_srli_epi32(a.lo, kBits), _mm256_srli_epi32(a.hi, kBits)};
}

// To the nearest integer, ties to even; 0x80000000 where it does not fit.
HEADROOM_INLINE I32x16 RoundToInt(F32x16 a) {
  return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)};
}
HEADROOM_INLINE F32x16 IntToFloat(I32x16 a) {
  return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)};
}
HEADROOM_INLINE I32x16 BitsOf(F32x16 a) {
  return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)};
}
HEADROOM_INLINE F32x16 FloatOf(I32x16 a) {
  return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)};
}

HEADROOM_INLINE I64x16 ZeroI64() {
  const __m256i zero = _mm256_setzero_si256();
  return {{zero, zero, zero, zero}};
}
HEADROOM_INLINE I64x16 LoadI64(const int64_t* p) {
  const __m256i* q = reinterpret_cast<const __m256i*>(p);
  return {{_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1), _mm256_loadu_si256(q + 2),
           _mm256_loadu_si256(q + 3)}};
}
HEADROOM_INLINE void StoreI64(int64_t* p, I64x16 v) {
  __m256i* q = reinterpret_cast<__m256i*>(p);
  HEADROOM_UNROLL
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_si256(q + i, v.q[i]);
  }
}
// Adding 1.5 * 2^52 leaves the rounded integer in the low bits of the double.
HEADROOM_INLINE __m256i AddRounded4(__m256i acc, __m128 x) {
  const __m256d magic = _mm256_set1_pd(simd_constants::kInt64Round);
  const __m256i bits = _mm256_castpd_si256(_mm256_add_pd(_mm256_cvtps_pd(x), magic));
  return _mm256_add_epi64(acc, _mm256_sub_epi64(bits, _mm256_castpd_si256(magic)));
}
// acc + x to the nearest integer, ties to even; |x| <= 2^50.
HEADROOM_INLINE I64x16 AddRounded(I64x16 acc, F32x16 x) {
  return {{AddRounded4(acc.q[0], _mm256_castps256_ps128(x.lo)),
           AddRounded4(acc.q[1], _mm256_extractf128_ps(x.lo, 1)),
           AddRounded4(acc.q[2], _mm256_castps256_ps128(x.hi)),
           AddRounded4(acc.q[3], _mm256_extractf128_ps(x.hi, 1))}};
}

HEADROOM_INLINE __m128i LoadHalves(const uint16_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
// Sixteen f16 or bf16 values as f32.
HEADROOM_INLINE F32x16 LoadF16(const uint16_t* p) {
  return {_mm256_cvtph_ps(LoadHalves(p)), _mm256_cvtph_ps(LoadHalves(p + 8))};
}
HEADROOM_INLINE F32x16 LoadBf16(const uint16_t* p) {
  return FloatOf(ShiftLeft<16>(
      {_mm256_cvtepu16_epi32(LoadHalves(p)), _mm256_cvtepu16_epi32(LoadHalves(p + 8))}));
}
// Eight f32 as bf16 in the low half of each lane.
HEADROOM_INLINE __m256i ToBf16(__m256 v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i exponent = _mm256_and_si256(bits, _mm256_set1_epi32(0x7f800000));
  const __m256i lsb = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i bias = _mm256_add_epi32(lsb, _mm256_set1_epi32(0x7fff));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
  const __m256i upper = _mm256_srli_epi32(bits, 16);
  const __m256i is_flushed = _mm256_cmpeq_epi32(exponent, _mm256_setzero_si256());
  const __m256i zero = _mm256_and_si256(upper, _mm256_set1_epi32(0x8000));
  const __m256i finite = _mm256_blendv_epi8(rounded, zero, is_flushed);
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(finite, _mm256_or_si256(upper, _mm256_set1_epi32(0x40)), is_nan);
}
// Sixteen values rounded to bf16, ties to even; denormals become zeros, NaNs quiet.
HEADROOM_INLINE void StoreBf16(uint16_t* p, F32x16 v) {
  const __m256i packed = _mm256_packus_epi32(ToBf16(v.lo), ToBf16(v.hi));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
}

// Rounded the same way, as f32.
HEADROOM_INLINE F32x16 RoundToBf16(F32x16 v) {
  return FloatOf(ShiftLeft<16>({ToBf16(v.lo), ToBf16(v.hi)}));
}

HEADROOM_INLINE __m256i LoadEightInt8(const int8_t* p) {
  return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
// Sixteen int8 values as f32.
HEADROOM_INLINE F32x16 LoadInt8(const int8_t* p) {
  return {_mm256_cvtepi32_ps(LoadEightInt8(p)), _mm256_cvtepi32_ps(LoadEightInt8(p + 8))};
}
// The low bytes of sixteen lanes.
HEADROOM_INLINE void StoreInt8(int8_t* p, I32x16 v) {
  const __m256i low_byte = _mm256_set1_epi32(0xff);
  const __m256i halves = _mm256_permute4x64_epi64(
      _mm256_packus_epi32(_mm256_and_si256(v.lo, low_byte), _mm256_and_si256(v.hi, low_byte)),
      0xd8);
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(p),
      _mm_packus_epi16(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1)));
}

// The odd or the even elements of sixteen pairs, as f32.
HEADROOM_INLINE F32x16 LoadOdd(const uint16_t* p) {
  return FloatOf(AndI(LoadI(reinterpret_cast<const int32_t*>(p)), Set1I(-0x10000)));
}
HEADROOM_INLINE F32x16 LoadEven(const uint16_t* p) {
  return FloatOf(ShiftLeft<16>(LoadI(reinterpret_cast<const int32_t*>(p))));
}
HEADROOM_INLINE Bf16x32 LoadPairs(const uint16_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 16))};
}
// One pair in every lane, read from p[0] and p[1].
HEADROOM_INLINE Bf16x32 BroadcastPair(const uint16_t* p) {
  int32_t bits;
  memcpy(&bits, p, sizeof(bits));
  return {_mm256_set1_epi32(bits), _mm256_set1_epi32(bits)};
}
// The pairs with their odd elements zeroed.
HEADROOM_INLINE Bf16x32 KeepEven(Bf16x32 a) {
  const __m256i even = _mm256_set1_epi32(0xffff);
  return {_mm256_and_si256(a.lo, even), _mm256_and_si256(a.hi, even)};
}
HEADROOM_INLINE __m256 OddOf(__m256i pairs) {
  return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(-0x10000)));
}
HEADROOM_INLINE __m256 EvenOf(__m256i pairs) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
}
// acc + odd elements' product, rounded, + even elements' product, rounded. Under FTZ and DAZ.
HEADROOM_INLINE F32x16 DotBf16Pair(F32x16 acc, Bf16x32 a, Bf16x32 b) {
  return {_mm256_fmadd_ps(EvenOf(a.lo), EvenOf(b.lo),
                          _mm256_fmadd_ps(OddOf(a.lo), OddOf(b.lo), acc.lo)),
          _mm256_fmadd_ps(EvenOf(a.hi), EvenOf(b.hi),
                          _mm256_fmadd_ps(OddOf(a.hi), OddOf(b.hi), acc.hi))};
}

// Lane i meets i + 8, then i + 4, i + 2, i + 1.
HEADROOM_INLINE float ReduceAdd(F32x16 v) {
  const __m256 a = _mm256_add_ps(v.lo, v.hi);
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_shuffle_ps(c, c, 1)));
}
HEADROOM_INLINE float ReduceMax(F32x16 v) {
  const __m256 a = _mm256_max_ps(v.lo, v.hi);
  const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(c, _mm_shuffle_ps(c, c, 1)));
}

HEADROOM_INLINE void Prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
}

#include "kernels/cpu/simd_math.inc"

}  // namespace headroom::kernels::cpu_avx2

#endif
