// The rates that the AVX-512 units reach from registers alone: what linear layers are measured by.
#include "kernels/cpu/linear_simd_avx512.h"
#include "tests/bench/peak.h"

namespace headroom::bench {

using namespace kernels::cpu_avx512;

static constexpr int kChains = 16;

void RunInt8Peak(int64_t num_steps) {
  const I32x16 weights = Set1I(0x03030303);
  const I32x16 a = Set1I(0x01010101);
  I32x16 acc[kChains];
  for (int j = 0; j < kChains; ++j) {
    acc[j] = Set1I(j);
  }
  for (int64_t i = 0; i < num_steps; ++i) {
    _Pragma("GCC unroll 16") for (int j = 0; j < kChains; ++j) {
      acc[j] = DotNarrow(acc[j], weights, a);
    }
    _Pragma("GCC unroll 16") for (int j = 0; j < kChains; ++j) {
      __asm__ __volatile__("" : : "v"(acc[j]));
    }
  }
}

void RunBf16Peak(int64_t num_steps) {
  const uint16_t one[32] = {0x3f80, 0x3f80};
  const Bf16x32 weights = LoadPairs(one);
  F32x16 acc[kChains];
  for (int j = 0; j < kChains; ++j) {
    acc[j] = Set1(static_cast<float>(j));
  }
  for (int64_t i = 0; i < num_steps; ++i) {
    _Pragma("GCC unroll 16") for (int j = 0; j < kChains; ++j) {
      acc[j] = DotBf16Pair(acc[j], weights, weights);
    }
    _Pragma("GCC unroll 16") for (int j = 0; j < kChains; ++j) {
      __asm__ __volatile__("" : : "v"(acc[j]));
    }
  }
}

double Int8OpsPerStep() { return kChains * 16 * 4 * 2.0; }
double Bf16OpsPerStep() { return kChains * 16 * 2 * 2.0; }

}  // namespace headroom::bench
