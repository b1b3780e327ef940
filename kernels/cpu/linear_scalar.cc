// Linear layers compiled for scalar; the sources are shared by all ISAs.
#include <string.h>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/linear_kernels.h"
#include "kernels/cpu/linear_simd_scalar.h"

namespace headroom::kernels {
namespace cpu_scalar {

// Each uses what the one before defines.
// clang-format off
#include "kernels/cpu/linear_rows.inc"
#include "kernels/cpu/linear_tiles.inc"
#include "kernels/cpu/linear_panel.inc"
// clang-format on

}  // namespace cpu_scalar

LinearKernels LinearKernelsScalar() {
  return {.convert_rows = cpu_scalar::ConvertRows, .linear_panel = cpu_scalar::LinearPanel};
}

}  // namespace headroom::kernels
