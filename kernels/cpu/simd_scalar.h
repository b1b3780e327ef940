// Plain C++: sixteen lanes in an array, for any machine. Contract: simd_common.h.
#pragma once

#include <string.h>

#include "kernels/cpu/simd_common.h"

namespace headroom::kernels::cpu_scalar {

struct F32x16 {
  float v[16];
};
struct I32x16 {
  uint32_t v[16];  // unsigned, so that overflow wraps
};
struct Bf16x32 {
  uint32_t v[16];
};
struct I64x16 {
  int64_t v[16];
};

HEADROOM_INLINE uint32_t BitsOf1(float a) {
  uint32_t bits;
  memcpy(&bits, &a, sizeof(bits));
  return bits;
}
HEADROOM_INLINE float FloatOf1(uint32_t bits) {
  float a;
  memcpy(&a, &bits, sizeof(a));
  return a;
}

// Defines one lane-wise function: the expression sees the lane index i.
#define HEADROOM_LANES(result_type, signature, expression) \
  HEADROOM_INLINE result_type signature {                  \
    result_type r;                                         \
    for (int i = 0; i < 16; ++i) {                         \
      r.v[i] = (expression);                               \
    }                                                      \
    return r;                                              \
  }

HEADROOM_LANES(F32x16, Zero(), 0.0f)
HEADROOM_LANES(F32x16, Set1(float a), a)
HEADROOM_LANES(F32x16, Load(const float* p), p[i])
HEADROOM_INLINE void Store(float* p, F32x16 a) { memcpy(p, a.v, sizeof(a.v)); }
// Lanes n and above: not read (0), not written.
HEADROOM_LANES(F32x16, LoadFirst(const float* p, int n), i < n ? p[i] : 0.0f)
HEADROOM_INLINE void StoreFirst(float* p, F32x16 a, int n) {
  for (int i = 0; i < n; ++i) {
    p[i] = a.v[i];
  }
}

HEADROOM_LANES(F32x16, Add(F32x16 a, F32x16 b), a.v[i] + b.v[i])
HEADROOM_LANES(F32x16, Sub(F32x16 a, F32x16 b), a.v[i] - b.v[i])
HEADROOM_LANES(F32x16, Mul(F32x16 a, F32x16 b), a.v[i] * b.v[i])
HEADROOM_LANES(F32x16, Div(F32x16 a, F32x16 b), a.v[i] / b.v[i])
HEADROOM_LANES(F32x16, Sqrt(F32x16 a), __builtin_sqrtf(a.v[i]))
HEADROOM_LANES(F32x16, Abs(F32x16 a), __builtin_fabsf(a.v[i]))
// a * b + c and c - a * b, rounded once.
HEADROOM_LANES(F32x16, Fma(F32x16 a, F32x16 b, F32x16 c), __builtin_fmaf(a.v[i], b.v[i], c.v[i]))
HEADROOM_LANES(F32x16, Fnma(F32x16 a, F32x16 b, F32x16 c), __builtin_fmaf(-a.v[i], b.v[i], c.v[i]))
// a > b ? a : b and a < b ? a : b: b where either is NaN.
HEADROOM_LANES(F32x16, Max(F32x16 a, F32x16 b), a.v[i] > b.v[i] ? a.v[i] : b.v[i])
HEADROOM_LANES(F32x16, Min(F32x16 a, F32x16 b), a.v[i] < b.v[i] ? a.v[i] : b.v[i])

// Lanes below n from a, the others from b.
HEADROOM_LANES(F32x16, SelectFirst(int n, F32x16 a, F32x16 b), i < n ? a.v[i] : b.v[i])
// x < y ? a : b.
HEADROOM_LANES(F32x16, SelectLess(F32x16 x, F32x16 y, F32x16 a, F32x16 b),
               x.v[i] < y.v[i] ? a.v[i] : b.v[i])
// x is NaN ? a : b.
HEADROOM_LANES(F32x16, SelectNan(F32x16 x, F32x16 a, F32x16 b),
               __builtin_isnan(x.v[i]) ? a.v[i] : b.v[i])

HEADROOM_LANES(I32x16, Set1I(int32_t a), static_cast<uint32_t>(a))
HEADROOM_LANES(I32x16, LoadI(const int32_t* p), static_cast<uint32_t>(p[i]))
HEADROOM_INLINE void StoreI(int32_t* p, I32x16 a) { memcpy(p, a.v, sizeof(a.v)); }
HEADROOM_LANES(I32x16, AddI(I32x16 a, I32x16 b), a.v[i] + b.v[i])
HEADROOM_LANES(I32x16, SubI(I32x16 a, I32x16 b), a.v[i] - b.v[i])
HEADROOM_LANES(I32x16, MulI(I32x16 a, I32x16 b), a.v[i] * b.v[i])
HEADROOM_LANES(I32x16, AndI(I32x16 a, I32x16 b), a.v[i] & b.v[i])
HEADROOM_LANES(I32x16, OrI(I32x16 a, I32x16 b), a.v[i] | b.v[i])
HEADROOM_LANES(I32x16, XorI(I32x16 a, I32x16 b), a.v[i] ^ b.v[i])
template <int kBits>
HEADROOM_LANES(I32x16, ShiftLeft(I32x16 a), a.v[i] << kBits)
// Logical.
template <int kBits>
HEADROOM_LANES(I32x16, ShiftRight(I32x16 a), a.v[i] >> kBits)

// To the nearest integer, ties to even; 0x80000000 where it does not fit.
HEADROOM_LANES(I32x16, RoundToInt(F32x16 a),
               a.v[i] >= -0x1p31f && a.v[i] < 0x1p31f
                   ? static_cast<uint32_t>(static_cast<int32_t>(__builtin_rintf(a.v[i])))
                   : 0x80000000u)
HEADROOM_LANES(F32x16, IntToFloat(I32x16 a), static_cast<float>(static_cast<int32_t>(a.v[i])))
HEADROOM_LANES(I32x16, BitsOf(F32x16 a), BitsOf1(a.v[i]))
HEADROOM_LANES(F32x16, FloatOf(I32x16 a), FloatOf1(a.v[i]))

HEADROOM_LANES(I64x16, ZeroI64(), 0)
HEADROOM_LANES(I64x16, LoadI64(const int64_t* p), p[i])
HEADROOM_INLINE void StoreI64(int64_t* p, I64x16 a) { memcpy(p, a.v, sizeof(a.v)); }
// Adding 1.5 * 2^52 leaves the rounded integer in the low bits of the double.
HEADROOM_INLINE int64_t RoundToInt64(float a) {
  const double magic = simd_constants::kInt64Round;
  const double shifted = static_cast<double>(a) + magic;
  int64_t bits, magic_bits;
  memcpy(&bits, &shifted, sizeof(bits));
  memcpy(&magic_bits, &magic, sizeof(magic_bits));
  return bits - magic_bits;
}
// acc + x to the nearest integer, ties to even; |x| <= 2^50.
HEADROOM_LANES(I64x16, AddRounded(I64x16 acc, F32x16 x), acc.v[i] + RoundToInt64(x.v[i]))

HEADROOM_INLINE float F16ToF32(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) {  // infinity or NaN, made quiet
    const uint32_t quiet = magnitude > 0x7c00u ? 0x400000u : 0u;
    return FloatOf1(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13) | quiet);
  }
  if (magnitude < 0x400u) {  // a multiple of 2^-24, exact in f32
    return FloatOf1(sign | BitsOf1(static_cast<float>(magnitude) * 0x1p-24f));
  }
  return FloatOf1(sign | ((magnitude << 13) + (112u << 23)));
}
HEADROOM_INLINE uint16_t F32ToBf16(float a) {
  const uint32_t bits = BitsOf1(a);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<uint16_t>((bits >> 16) | 0x40u);
  }
  if (magnitude < 0x00800000u) {
    return static_cast<uint16_t>((bits >> 16) & 0x8000u);
  }
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
// Sixteen f16 or bf16 values as f32.
HEADROOM_LANES(F32x16, LoadF16(const uint16_t* p), F16ToF32(p[i]))
HEADROOM_LANES(F32x16, LoadBf16(const uint16_t* p), FloatOf1(static_cast<uint32_t>(p[i]) << 16))
// Sixteen values rounded to bf16, ties to even; denormals become zeros, NaNs quiet.
HEADROOM_INLINE void StoreBf16(uint16_t* p, F32x16 a) {
  for (int i = 0; i < 16; ++i) {
    p[i] = F32ToBf16(a.v[i]);
  }
}

// Rounded the same way, as f32.
HEADROOM_LANES(F32x16, RoundToBf16(F32x16 a),
               FloatOf1(static_cast<uint32_t>(F32ToBf16(a.v[i])) << 16))

// Sixteen int8 values as f32.
HEADROOM_LANES(F32x16, LoadInt8(const int8_t* p), static_cast<float>(p[i]))
// The low bytes of sixteen lanes.
HEADROOM_INLINE void StoreInt8(int8_t* p, I32x16 v) {
  for (int i = 0; i < 16; ++i) {
    p[i] = static_cast<int8_t>(v.v[i]);
  }
}

// The odd or the even elements of sixteen pairs, as f32.
HEADROOM_LANES(F32x16, LoadOdd(const uint16_t* p),
               FloatOf1(static_cast<uint32_t>(p[2 * i + 1]) << 16))
HEADROOM_LANES(F32x16, LoadEven(const uint16_t* p), FloatOf1(static_cast<uint32_t>(p[2 * i]) << 16))
HEADROOM_LANES(Bf16x32, LoadPairs(const uint16_t* p),
               p[2 * i] | (static_cast<uint32_t>(p[2 * i + 1]) << 16))
// One pair in every lane, read from p[0] and p[1].
HEADROOM_LANES(Bf16x32, BroadcastPair(const uint16_t* p),
               p[0] | (static_cast<uint32_t>(p[1]) << 16))
// The pairs with their odd elements zeroed.
HEADROOM_LANES(Bf16x32, KeepEven(Bf16x32 a), a.v[i] & 0xffffu)
HEADROOM_INLINE float DotBf16Pair1(float acc, uint32_t a, uint32_t b) {
  const float odd = __builtin_fmaf(FloatOf1(a & 0xffff0000u), FloatOf1(b & 0xffff0000u), acc);
  return __builtin_fmaf(FloatOf1(a << 16), FloatOf1(b << 16), odd);
}
// acc + odd elements' product, rounded, + even elements' product, rounded. Under FTZ and DAZ.
HEADROOM_LANES(F32x16, DotBf16Pair(F32x16 acc, Bf16x32 a, Bf16x32 b),
               DotBf16Pair1(acc.v[i], a.v[i], b.v[i]))

// Lane i meets i + 8, then i + 4, i + 2, i + 1.
HEADROOM_INLINE float ReduceAdd(F32x16 a) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) {
      a.v[i] = a.v[i] + a.v[i + half];
    }
  }
  return a.v[0];
}
HEADROOM_INLINE float ReduceMax(F32x16 a) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) {
      a.v[i] = a.v[i] > a.v[i + half] ? a.v[i] : a.v[i + half];
    }
  }
  return a.v[0];
}

HEADROOM_INLINE void Prefetch(const void* p) { __builtin_prefetch(p); }

#undef HEADROOM_LANES

#include "kernels/cpu/simd_math.inc"

}  // namespace headroom::kernels::cpu_scalar
