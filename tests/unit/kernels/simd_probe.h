// The simd layer's functions, reachable from a test that is compiled for the baseline machine.
#pragma once

#include <stdint.h>

namespace headroom::kernels {

// Each works on arrays; n is a multiple of 16 unless said.
struct SimdProbe {
  void (*exp)(const float* x, float* y, int n);
  void (*exp_non_positive)(const float* x, float* y, int n);
  void (*rsqrt)(const float* x, float* y, int n);
  void (*dot_bf16_pair)(const float* acc, const uint16_t* a, const uint16_t* b, float* y, int n);
  void (*to_bf16)(const float* x, uint16_t* y, int n);
  void (*round_to_bf16)(const float* x, float* y, int n);
  void (*from_bf16)(const uint16_t* x, float* y, int n);
  void (*from_f16)(const uint16_t* x, float* y, int n);
  void (*round_to_int)(const float* x, int32_t* y, int n);
  void (*add_rounded)(const float* x, int64_t* y, int n);
  float (*reduce_add)(const float* x);  // [16]
  float (*reduce_max)(const float* x);  // [16]
  void (*copy_first)(const float* x, float* y, int n);  // any n in [0, 16]
};

SimdProbe SimdProbeScalar();
SimdProbe SimdProbeAvx2();
SimdProbe SimdProbeAvx512();

}  // namespace headroom::kernels
