// Exact scalar decoding of stored rows to f32; the definition that every packed format must match.
//
// Block layouts are GGUF's (ggml-org/ggml:docs/gguf.md and the type descriptions there).
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace headroom::kernels {

// Decodes `num_elements` (a multiple of the block size) from `row` into out[num_elements].
void DequantizeRow(DType dtype, const void* row, int64_t num_elements, float* out);

}  // namespace headroom::kernels
