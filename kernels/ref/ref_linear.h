// Linear algebra of the reference backend.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/ops.h"

namespace headroom::kernels::ref {

// Weights dequantised to f32, in groups of 8 rows: [ceil(rows / 8)][cols][8], zero-padded.
class RefWeight final : public PackedWeight {
 public:
  RefWeight(std::span<const TensorView> parts, bool gate_up);

  int64_t rows() const override { return rows_; }
  int64_t cols() const override { return cols_; }
  size_t num_bytes() const override { return values_.size() * sizeof(float); }
  bool gate_up() const { return gate_up_; }

  // Eight output features of one input row, summed in order of cols in double.
  void Dot8(int64_t group, const float* x, double* out) const;
  float At(int64_t row, int64_t col) const {
    return values_[static_cast<size_t>(((row / 8) * cols_ + col) * 8 + row % 8)];
  }

 private:
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  bool gate_up_;
  std::vector<float> values_;
};

void EmbedRows(const EmbedRowsParams& params);
void Linear(const LinearParams& params, ThreadPool& pool);

}  // namespace headroom::kernels::ref
