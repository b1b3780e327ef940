// A borrowed, read-only 2-D tensor as it lies in a model file.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace headroom {

struct TensorView {
  const void* data = nullptr;  // [rows, cols], rows contiguous; not owned
  DType dtype = DType::kF32;
  int64_t rows = 0;  // output features for a weight matrix; 1 for a vector
  int64_t cols = 0;  // input features; a multiple of the dtype's block size

  int64_t row_bytes() const { return RowBytes(dtype, cols); }
  int64_t num_bytes() const { return rows * row_bytes(); }
};

}  // namespace headroom
