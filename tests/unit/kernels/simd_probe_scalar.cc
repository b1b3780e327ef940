#include "kernels/cpu/simd_scalar.h"
#include "tests/unit/kernels/simd_probe.h"

namespace headroom::kernels {
namespace cpu_scalar {
#include "tests/unit/kernels/simd_probe.inc"
}  // namespace cpu_scalar

SimdProbe SimdProbeScalar() { return cpu_scalar::MakeSimdProbe(); }

}  // namespace headroom::kernels
