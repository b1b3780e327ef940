#include "kernels/cpu/simd_avx2.h"
#include "tests/unit/kernels/simd_probe.h"

namespace headroom::kernels {
namespace cpu_avx2 {
#include "tests/unit/kernels/simd_probe.inc"
}  // namespace cpu_avx2

SimdProbe SimdProbeAvx2() { return cpu_avx2::MakeSimdProbe(); }

}  // namespace headroom::kernels
