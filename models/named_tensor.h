// A tensor as a model file lists it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/tensor_view.h"

namespace headroom::models {

struct NamedTensor {
  std::string name;
  std::vector<int64_t> shape;  // outermost first, at most 4; empty for a scalar
  TensorView view;             // cols = the innermost dimension, rows = the product of the others
  uint64_t file_offset = 0;    // of the first data byte
};

// Fills view.rows and view.cols from the shape. False when the count of elements or of bytes does
// not fit in int64, a dimension is not positive, or a row is no whole number of blocks.
bool SetViewShape(NamedTensor& tensor);

// "[2, 3]"
std::string ShapeText(const std::vector<int64_t>& shape);

}  // namespace headroom::models
