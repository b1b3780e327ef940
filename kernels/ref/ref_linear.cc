#include "kernels/ref/ref_linear.h"

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/dequantize.h"

namespace headroom::kernels::ref {
namespace {

void NormaliseRow(const LinearParams& params, const float* x, float* out) {
  const int64_t cols = params.weight->cols();
  if (params.norm_weight == nullptr) {
    std::memcpy(out, x, sizeof(float) * static_cast<size_t>(cols));
    return;
  }
  double sum = 0.0;
  for (int64_t col = 0; col < cols; ++col) {
    sum += static_cast<double>(x[col]) * x[col];
  }
  const double scale = 1.0 / std::sqrt(sum / static_cast<double>(cols) + params.norm_eps);
  for (int64_t col = 0; col < cols; ++col) {
    out[col] = static_cast<float>(x[col] * scale * params.norm_weight[col]);
  }
}

double Silu(double x) { return x / (1.0 + std::exp(-x)); }

// Output features [8 * group, 8 * group + 8) of all rows.
void LinearGroup(const LinearParams& params, const RefWeight& weight,
                 const std::vector<float>& x, int64_t group) {
  const int64_t cols = weight.cols();
  const int64_t half = weight.rows() / 2;
  for (int64_t row = 0; row < params.num_rows; ++row) {
    double sums[8];
    weight.Dot8(group, x.data() + row * cols, sums);
    float* out = params.out + row * params.out_stride;
    for (int64_t i = 0; i < 8 && group * 8 + i < weight.rows(); ++i) {
      const int64_t feature = group * 8 + i;
      if (params.epilogue == LinearEpilogue::kStore) {
        out[feature] = static_cast<float>(sums[i]);
      } else if (params.epilogue == LinearEpilogue::kAdd) {
        out[feature] = static_cast<float>(out[feature] + sums[i]);
      } else if (i % 2 == 0) {  // gate and up alternate
        HEADROOM_DCHECK(feature / 2 < half);
        out[feature / 2] = static_cast<float>(Silu(sums[i]) * sums[i + 1]);
      }
    }
  }
}

}  // namespace

RefWeight::RefWeight(std::span<const TensorView> parts, bool gate_up) : gate_up_(gate_up) {
  cols_ = parts[0].cols;
  for (const TensorView& part : parts) {
    HEADROOM_CHECK(part.cols == cols_);
    rows_ += part.rows;
  }
  values_.resize(static_cast<size_t>((rows_ + 7) / 8 * 8 * cols_));
  std::vector<float> row_values(static_cast<size_t>(cols_));
  int64_t row_base = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    for (int64_t r = 0; r < parts[p].rows; ++r) {
      const auto* bytes = static_cast<const uint8_t*>(parts[p].data) + r * parts[p].row_bytes();
      DequantizeRow(parts[p].dtype, bytes, cols_, row_values.data());
      const int64_t row = gate_up_ ? 2 * r + static_cast<int64_t>(p) : row_base + r;
      for (int64_t col = 0; col < cols_; ++col) {
        values_[static_cast<size_t>(((row / 8) * cols_ + col) * 8 + row % 8)] =
            row_values[static_cast<size_t>(col)];
      }
    }
    row_base += parts[p].rows;
  }
}

void RefWeight::Dot8(int64_t group, const float* x, double* out) const {
  const float* w = values_.data() + group * cols_ * 8;
  double sums[8] = {};
  for (int64_t col = 0; col < cols_; ++col) {
    const double value = x[col];
    for (int i = 0; i < 8; ++i) {
      sums[i] += value * static_cast<double>(w[col * 8 + i]);
    }
  }
  for (int i = 0; i < 8; ++i) {
    out[i] = sums[i];
  }
}

void EmbedRows(const EmbedRowsParams& params) {
  const auto& weight = static_cast<const RefWeight&>(*params.weight);
  for (size_t r = 0; r < params.ids.size(); ++r) {
    HEADROOM_CHECK(params.ids[r] >= 0 && params.ids[r] < weight.rows());
    for (int64_t col = 0; col < weight.cols(); ++col) {
      params.out[static_cast<int64_t>(r) * weight.cols() + col] = weight.At(params.ids[r], col);
    }
  }
}

void Linear(const LinearParams& params, ThreadPool& pool) {
  const auto& weight = static_cast<const RefWeight&>(*params.weight);
  HEADROOM_CHECK(weight.gate_up() == (params.epilogue == LinearEpilogue::kSiluMul));
  const int64_t cols = weight.cols();
  std::vector<float> x(static_cast<size_t>(params.num_rows * cols));
  for (int64_t row = 0; row < params.num_rows; ++row) {
    NormaliseRow(params, params.x + row * params.x_stride, x.data() + row * cols);
  }
  pool.ParallelFor((weight.rows() + 7) / 8,
                   [&](int64_t group, int) { LinearGroup(params, weight, x, group); });
}

}  // namespace headroom::kernels::ref
