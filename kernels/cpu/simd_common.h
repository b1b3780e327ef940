// What the three simd headers share: the inline attribute and the constants of Exp.
//
// simd_avx512.h, simd_avx2.h and simd_scalar.h offer the same types and functions, each in a
// namespace of its own, and each translation unit includes exactly one of them:
//
//   F32x16   sixteen f32 lanes           I32x16   sixteen int32 lanes
//   I64x16   sixteen int64 lanes
//   Bf16x32  sixteen pairs of bf16, lane i = elements 2i (low half) and 2i + 1 (high half)
//
// Contract: every function gives the same bits in all three, under FTZ and DAZ (base/
// flush_denormals.h; NaN payloads apart). They hold because each lane is one IEEE operation or a
// fixed sequence of them, and sums over lanes are one fixed tree. Compile with -ffp-contract=off.
//
// Kernel units are compiled for an ISA that the machine may lack, so nothing in them may be
// shared with other units by the linker: no inline functions with linkage, no STL; everything here
// is static and always inlined.
#pragma once

#include <stdint.h>

#define HEADROOM_INLINE static inline __attribute__((always_inline))

// Before a loop with a constant trip count over registers: an array that is not unrolled away
// lives in memory, at a sixth of the speed.
#if defined(__clang__)
#define HEADROOM_UNROLL _Pragma("clang loop unroll(full)")
#else
#define HEADROOM_UNROLL _Pragma("GCC unroll 16")
#endif

namespace headroom::kernels::simd_constants {

// exp(x) = 2^n * exp(r), n = round(x / ln 2), r = x - n ln 2 with ln 2 in two parts, the first of
// which times n is exact. exp(r) = 1 + r + r^2 * (kExp0 + kExp1 r + ...), a relative minimax fit on
// |r| <= ln(2) / 2 (error 3e-9).
static constexpr float kExpLog2E = 1.44269502f;
static constexpr float kExpLn2High = 0.693359375f;
static constexpr float kExpLn2Low = -2.12194442e-4f;
static constexpr float kExp0 = 0.499999934f;
static constexpr float kExp1 = 0.166665204f;
static constexpr float kExp2 = 0.0416683908f;
static constexpr float kExp3 = 0.00836874566f;
static constexpr float kExp4 = 0.00138145404f;
// 1.5 * 2^23: adding it rounds to an integer (ties to even), which then sits in the low bits.
static constexpr float kExpRound = 12582912.0f;
// 1.5 * 2^52: the same for doubles and 64-bit integers.
static constexpr double kInt64Round = 6755399441055744.0;
// Below: the result is not safely a normal number, and is 0. Above: infinity.
static constexpr float kExpMin = -87.33f;
static constexpr float kExpMax = 88.7228317f;

}  // namespace headroom::kernels::simd_constants
