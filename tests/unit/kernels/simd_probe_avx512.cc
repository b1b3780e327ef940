#include "kernels/cpu/simd_avx512.h"
#include "tests/unit/kernels/simd_probe.h"

namespace headroom::kernels {
namespace cpu_avx512 {
#include "tests/unit/kernels/simd_probe.inc"
}  // namespace cpu_avx512

SimdProbe SimdProbeAvx512() { return cpu_avx512::MakeSimdProbe(); }

}  // namespace headroom::kernels
