// Compiled for AVX-512 with bf16.
#include "tests/bench/bf16_peak.h"

#include <time.h>

#include "kernels/cpu/simd_avx512.h"

namespace headroom::kernels {

double Bf16PeakGflops() {
  using namespace cpu_avx512;
  constexpr int kNumSums = 24;
  constexpr int kNumSteps = 20000;
  uint16_t pairs[32];
  for (int i = 0; i < 32; ++i) {
    pairs[i] = static_cast<uint16_t>(0x3c00 + i);
  }
  double best = 0.0;
  float sink = 0.0f;
  for (int run = 0; run < 100; ++run) {
    const Bf16x32 a = LoadPairs(pairs);
    F32x16 sums[kNumSums];
    HEADROOM_UNROLL
    for (int i = 0; i < kNumSums; ++i) {
      sums[i] = Zero();
    }
    timespec begin, end;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    for (int step = 0; step < kNumSteps; ++step) {
#pragma GCC unroll 24
      for (int i = 0; i < kNumSums; ++i) {
        sums[i] = DotBf16Pair(sums[i], a, a);
      }
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    HEADROOM_UNROLL
    for (int i = 0; i < kNumSums; ++i) {
      sink += ReduceAdd(sums[i]);
    }
    const double seconds = static_cast<double>(end.tv_sec - begin.tv_sec) +
                           static_cast<double>(end.tv_nsec - begin.tv_nsec) * 1e-9;
    const double gflops = 64.0 * kNumSums * kNumSteps / seconds * 1e-9;
    best = gflops > best ? gflops : best;
  }
  return sink == 0.125f ? 0.0 : best;  // the sums are used
}

}  // namespace headroom::kernels
