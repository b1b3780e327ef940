// Conversion of stored rows to one panel and back. Layouts: WeightFormat in linear_kernels.h.
#pragma once

#include <cstdint>

#include "base/tensor_view.h"
#include "base/thread_pool.h"
#include "kernels/cpu/linear_kernels.h"

namespace headroom::kernels {

// The format for a tensor: its own for block formats, kBf16 where every value is exact in bf16,
// kF32 otherwise. Reads the tensor.
WeightFormat ChooseFormat(const TensorView& tensor, ThreadPool* pool);

// Bytes of a panel of `padded_cols` input features.
inline size_t PanelBytes(WeightFormat format, int64_t padded_cols) {
  return static_cast<size_t>(padded_cols / kQuantBlock) *
         static_cast<size_t>(PanelBlockBytes(format));
}

// Packs rows [first_row, first_row + num_rows), num_rows <= 64, into `panel`, which holds zeros.
void PackPanel(const TensorView& tensor, int64_t first_row, int num_rows, WeightFormat format,
               uint8_t* panel);

// Column `column` of a panel that was packed from `dtype`, exactly. out[cols]
void UnpackColumn(const PanelView& panel, DType dtype, int column, int64_t cols, float* out);

}  // namespace headroom::kernels
