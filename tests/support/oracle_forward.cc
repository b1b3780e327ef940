#include "tests/support/oracle_forward.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/dtype.h"

namespace headroom::testing {
namespace {

using Rows = std::vector<std::vector<double>>;

std::vector<double> MatVec(const TensorView& weight, const std::vector<double>& x) {
  const auto* values = static_cast<const float*>(weight.data);
  std::vector<double> out(static_cast<size_t>(weight.rows), 0.0);
  for (int64_t row = 0; row < weight.rows; ++row) {
    double sum = 0.0;
    for (int64_t col = 0; col < weight.cols; ++col) {
      sum += double{values[row * weight.cols + col]} * x[static_cast<size_t>(col)];
    }
    out[static_cast<size_t>(row)] = sum;
  }
  return out;
}

std::vector<double> Norm(const TensorView& weight, double eps, const std::vector<double>& x) {
  const double squares = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
  std::vector<double> out(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    out[i] = x[i] * scale * double{static_cast<const float*>(weight.data)[i]};
  }
  return out;
}

class Oracle {
 public:
  Oracle(const models::LoadedModel& model, const OracleInput& input)
      : config_(model.config), weights_(model.weights), input_(input) {}

  std::vector<std::vector<double>> Run() {
    const size_t num_rows = input_.tokens.size();
    hidden_.resize(num_rows);
    const auto* table = static_cast<const float*>(weights_.embed_tokens.data);
    for (size_t row = 0; row < num_rows; ++row) {
      const float* embedded = table + int64_t{input_.tokens[row]} * config_.hidden_size;
      hidden_[row].assign(embedded, embedded + config_.hidden_size);
    }
    for (int32_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
      RunLayer(layer);
    }
    std::vector<std::vector<double>> logits;
    for (size_t row = static_cast<size_t>(input_.num_prompt) - 1; row < num_rows; ++row) {
      logits.push_back(MatVec(
          weights_.lm_head, Norm(weights_.final_norm, double{config_.rms_norm_eps}, hidden_[row])));
    }
    return logits;
  }

 private:
  // Whether the row runs `layer`.
  bool Runs(int32_t layer, int32_t position) const { return Survives(layer + 1, position); }
  // Whether the row enters `layer`, and so has K and V there.
  bool Stored(int32_t layer, int32_t position) const { return Survives(layer, position); }
  // Whether no drop below `layer` drops the row.
  bool Survives(int32_t layer, int32_t position) const {
    return position >= input_.num_prompt ||
           std::all_of(input_.drops.begin(), input_.drops.end(), [&](const RowDrop& drop) {
             return drop.layer >= layer ||
                    std::binary_search(drop.rows.begin(), drop.rows.end(), position);
           });
  }

  void Rotate(std::vector<double>& heads, int32_t num_heads, int32_t position) const {
    const int32_t pairs = config_.head_dim / 2;
    for (int32_t head = 0; head < num_heads; ++head) {
      double* x = heads.data() + int64_t{head} * config_.head_dim;
      for (int32_t i = 0; i < pairs; ++i) {
        const double angle = position * std::pow(config_.rope_theta, -2.0 * i / config_.head_dim);
        const bool halves = config_.rope_pairing == models::RopePairing::kHalves;
        double& a = x[halves ? i : 2 * i];
        double& b = x[halves ? i + pairs : 2 * i + 1];
        const double rotated = a * std::cos(angle) - b * std::sin(angle);
        b = a * std::sin(angle) + b * std::cos(angle);
        a = rotated;
      }
    }
  }

  std::vector<int32_t> Seen(int32_t layer, int32_t kv_head, int32_t position) const {
    if (position >= input_.num_prompt) {
      return input_.seen[static_cast<size_t>(position - input_.num_prompt)]
                        [static_cast<size_t>(layer)][static_cast<size_t>(kv_head)];
    }
    std::vector<int32_t> seen;
    for (int32_t key = 0; key <= position; ++key) {
      if (Stored(layer, key)) {
        seen.push_back(key);
      }
    }
    return seen;
  }

  void AttendHead(const std::vector<int32_t>& seen, const double* q, int32_t kv_head,
                  double* out) const {
    const int64_t dim = config_.head_dim;
    const int64_t offset = kv_head * dim;
    std::vector<double> weights;
    for (const int32_t key : seen) {
      const double* k = keys_[static_cast<size_t>(key)].data() + offset;
      weights.push_back(std::inner_product(q, q + dim, k, 0.0) /
                        std::sqrt(static_cast<double>(dim)));
    }
    const double top = *std::max_element(weights.begin(), weights.end());
    double total = 0.0;
    for (double& weight : weights) {
      weight = std::exp(weight - top);
      total += weight;
    }
    std::fill(out, out + dim, 0.0);
    for (size_t i = 0; i < seen.size(); ++i) {
      const double* v = values_[static_cast<size_t>(seen[i])].data() + offset;
      for (int64_t d = 0; d < dim; ++d) {
        out[d] += weights[i] / total * v[d];
      }
    }
  }

  void RunLayer(int32_t layer) {
    const models::LayerWeights& weights = weights_.layers[static_cast<size_t>(layer)];
    const auto num_rows = static_cast<int32_t>(input_.tokens.size());
    keys_.assign(hidden_.size(), {});
    values_.assign(hidden_.size(), {});
    for (int32_t row = 0; row < num_rows; ++row) {
      if (Stored(layer, row)) {
        const size_t index = static_cast<size_t>(row);
        const std::vector<double> x =
            Norm(weights.input_norm, double{config_.rms_norm_eps}, hidden_[index]);
        keys_[index] = MatVec(weights.k_proj, x);
        Rotate(keys_[index], config_.num_key_value_heads, row);
        values_[index] = MatVec(weights.v_proj, x);
        Round(keys_[index]);
        Round(values_[index]);
      }
    }
    for (int32_t row = 0; row < num_rows; ++row) {
      if (Runs(layer, row)) {
        RunRow(weights, layer, row);
      }
    }
  }

  void RunRow(const models::LayerWeights& weights, int32_t layer, int32_t row) {
    std::vector<double>& hidden = hidden_[static_cast<size_t>(row)];
    const double eps = double{config_.rms_norm_eps};
    std::vector<double> q = MatVec(weights.q_proj, Norm(weights.input_norm, eps, hidden));
    Rotate(q, config_.num_attention_heads, row);
    std::vector<double> attended(q.size());
    for (int32_t kv_head = 0; kv_head < config_.num_key_value_heads; ++kv_head) {
      const std::vector<int32_t> seen = Seen(layer, kv_head, row);
      for (int32_t g = 0; g < config_.group_size(); ++g) {
        const int64_t offset = (int64_t{kv_head} * config_.group_size() + g) * config_.head_dim;
        AttendHead(seen, q.data() + offset, kv_head, attended.data() + offset);
      }
    }
    Add(hidden, MatVec(weights.o_proj, attended));
    const std::vector<double> x = Norm(weights.post_attention_norm, eps, hidden);
    std::vector<double> gate = MatVec(weights.gate_proj, x);
    const std::vector<double> up = MatVec(weights.up_proj, x);
    for (size_t i = 0; i < gate.size(); ++i) {
      gate[i] = gate[i] / (1.0 + std::exp(-gate[i])) * up[i];
    }
    Add(hidden, MatVec(weights.down_proj, gate));
  }

  // K or V of one token, [num_kv_heads, head_dim], as the cache's dtype holds it.
  void Round(std::vector<double>& values) const {
    if (input_.kv_dtype == kernels::KvDType::kBF16) {
      for (double& value : values) {
        value = double{Bf16ToFloat(FloatToBf16(static_cast<float>(value)))};
      }
    } else if (input_.kv_dtype == kernels::KvDType::kInt8) {
      for (auto head = values.begin(); head != values.end(); head += config_.head_dim) {
        double largest = 0.0;
        for (int32_t d = 0; d < config_.head_dim; ++d) {
          largest = std::max(largest, std::abs(head[d]));
        }
        for (int32_t d = 0; d < config_.head_dim; ++d) {
          head[d] = largest == 0.0 ? 0.0 : std::rint(head[d] * 127 / largest) * largest / 127;
        }
      }
    }
  }

  static void Add(std::vector<double>& sum, const std::vector<double>& term) {
    std::transform(sum.begin(), sum.end(), term.begin(), sum.begin(), std::plus<>());
  }

  const models::ModelConfig& config_;
  const models::ModelWeights& weights_;
  const OracleInput& input_;
  Rows hidden_;  // [M][hidden]
  Rows keys_;    // [M][kv width] of the current layer
  Rows values_;  // [M][kv width]
};

}  // namespace

std::vector<std::vector<double>> OracleLogits(const models::LoadedModel& model,
                                              const OracleInput& input) {
  return Oracle(model, input).Run();
}

}  // namespace headroom::testing
