// Exact scalar conversion of weight rows to float: the definition that every packed layout is
// tested against. Not a hot path.
//
// Block layouts (32 elements, d and m are f16, little-endian, q0..q15 low nibbles first):
//   q8_0  d, 32 x int8                          value = d * q
//   q4_0  d, 16 bytes                           value = d * (q - 8)
//   q4_1  d, m, 16 bytes                        value = d * q + m
//   q5_0  d, 32 fifth bits, 16 bytes            value = d * (q - 16)
//   q5_1  d, m, 32 fifth bits, 16 bytes         value = d * q + m
// Byte j of the 16 holds element j in its low and element j + 16 in its high nibble.
// Source of the layouts: the GGUF format's block definitions (ggml-org/ggml docs/gguf.md).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/tensor_view.h"

namespace headroom::models {

// Converts `out.size()` elements, a multiple of the block size, from `data` in `dtype`. `data` may
// have any alignment. Every product and sum is rounded once, to float.
void DequantizeRow(DType dtype, const void* data, std::span<float> out);

// The whole tensor: [rows, cols].
std::vector<float> DequantizeTensor(const TensorView& view);

}  // namespace headroom::models
