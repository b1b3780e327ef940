#include "models/named_tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace headroom::models {

bool SetViewShape(NamedTensor& tensor) {
  int64_t rows = 1;
  const int64_t cols = tensor.shape.empty() ? 1 : tensor.shape.back();
  for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) {
    if (tensor.shape[i] <= 0 || __builtin_mul_overflow(rows, tensor.shape[i], &rows)) {
      return false;
    }
  }
  const DTypeInfo info = GetDTypeInfo(tensor.view.dtype);
  int64_t row_bytes = 0;
  int64_t num_bytes = 0;
  if (cols <= 0 || cols % info.block_size != 0 ||
      __builtin_mul_overflow(cols / info.block_size, int64_t{info.block_bytes}, &row_bytes) ||
      __builtin_mul_overflow(rows, row_bytes, &num_bytes)) {
    return false;
  }
  tensor.view.rows = rows;
  tensor.view.cols = cols;
  return true;
}

std::string ShapeText(const std::vector<int64_t>& shape) { return fmt::format("{}", shape); }

}  // namespace headroom::models
