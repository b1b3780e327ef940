// Linear layers compiled for avx2; the sources are shared by all ISAs.
#include <string.h>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/linear_kernels.h"
#include "kernels/cpu/linear_simd_avx2.h"

namespace headroom::kernels {
namespace cpu_avx2 {

// Each uses what the one before defines.
// clang-format off
#include "kernels/cpu/linear_rows.inc"
#include "kernels/cpu/linear_tiles.inc"
#include "kernels/cpu/linear_panel.inc"
// clang-format on

}  // namespace cpu_avx2

LinearKernels LinearKernelsAvx2() {
  return {.convert_rows = cpu_avx2::ConvertRows, .linear_panel = cpu_avx2::LinearPanel};
}

}  // namespace headroom::kernels
