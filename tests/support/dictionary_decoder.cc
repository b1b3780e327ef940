#include "tests/support/dictionary_decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace headroom::testing {
namespace {

constexpr int32_t kPage = 16;

const float* Floats(const TensorView& weight) { return static_cast<const float*>(weight.data); }

std::vector<double> Times(const TensorView& weight, const std::vector<double>& x) {
  std::vector<double> out;
  for (int64_t row = 0; row < weight.rows; ++row) {
    double sum = 0.0;
    for (int64_t col = 0; col < weight.cols; ++col) {
      sum += double{Floats(weight)[row * weight.cols + col]} * x[static_cast<size_t>(col)];
    }
    out.push_back(sum);
  }
  return out;
}

std::vector<double> Normalised(const TensorView& weight, float eps, const std::vector<double>& x) {
  double squares = 0.0;
  for (const double value : x) {
    squares += value * value;
  }
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + double{eps});
  std::vector<double> out;
  for (size_t i = 0; i < x.size(); ++i) {
    out.push_back(x[i] * scale * double{Floats(weight)[i]});
  }
  return out;
}

void AddTo(std::vector<double>& sum, const std::vector<double>& term) {
  for (size_t i = 0; i < sum.size(); ++i) {
    sum[i] += term[i];
  }
}

}  // namespace

DictionaryDecoder::DictionaryDecoder(const models::LoadedModel& model, const DictionaryRules& rules)
    : model_(model), rules_(rules) {
  heads_.assign(static_cast<size_t>(model.config.num_hidden_layers),
                std::vector<Head>(static_cast<size_t>(model.config.num_key_value_heads)));
}

int32_t DictionaryDecoder::Read(const std::vector<int32_t>& prompt) {
  int32_t next = 0;
  for (const int32_t token : prompt) {
    next = Run(token);
  }
  for (std::vector<Head>& layer : heads_) {
    for (Head& head : layer) {
      Drop(head, std::max(0, static_cast<int32_t>(head.size()) - rules_.capacity));
    }
  }
  return next;
}

void DictionaryDecoder::Read(const std::vector<int32_t>& prompt,
                             const std::function<bool(int32_t)>& observes) {
  for (const int32_t token : prompt) {
    observed_ = observes(position_);
    Run(token);
  }
  observed_ = true;
}

void DictionaryDecoder::Settle(int32_t layer, int32_t kv_head, const DictionaryHead& rules) {
  settled_[{layer, kv_head}] = rules;
  Head& head = heads_[static_cast<size_t>(layer)][static_cast<size_t>(kv_head)];
  for (auto entry = head.begin(); entry != head.end();) {
    entry = rules.kept.count(entry->first) == 0 ? head.erase(entry) : std::next(entry);
  }
  for (const int32_t position : rules.unscored) {
    if (rules.kept.count(position) != 0) {
      head.at(position).score = 0.0;
    }
  }
}

void DictionaryDecoder::PinNext(int32_t layer, int32_t kv_head) {
  settled_.at({layer, kv_head}).pinned.insert(position_);
}

void DictionaryDecoder::DropSettled(Head& head, const DictionaryHead& rules) {
  if (rules.grows || static_cast<int32_t>(head.size()) < rules.capacity + kPage) {
    return;
  }
  std::vector<std::pair<double, int32_t>> order;
  int32_t index = 0;
  for (const auto& [position, entry] : head) {
    if (index++ < static_cast<int32_t>(head.size()) - rules.recent &&
        rules.pinned.count(position) == 0) {
      order.emplace_back(rules.by_score ? entry.score : position,
                         rules.by_score ? -position : position);
    }
  }
  if (rules.by_score) {
    EraseLowest(head, std::move(order), kPage);
    return;
  }
  for (size_t i = 0; i < kPage; ++i) {
    head.erase(order.at(i).second);
  }
}

int32_t DictionaryDecoder::Next(int32_t token) {
  for (const auto& [at, rules] : settled_) {
    DropSettled(heads_[static_cast<size_t>(at.first)][static_cast<size_t>(at.second)], rules);
  }
  if (!settled_.empty()) {
    return Run(token);
  }
  for (std::vector<Head>& layer : heads_) {
    for (Head& head : layer) {
      if (static_cast<int32_t>(head.size()) >= rules_.capacity + kPage) {
        Drop(head, kPage);
      }
    }
  }
  return Run(token);
}

std::vector<int32_t> DictionaryDecoder::Positions(int32_t layer, int32_t kv_head) const {
  std::vector<int32_t> positions;
  for (const auto& [position, entry] :
       heads_[static_cast<size_t>(layer)][static_cast<size_t>(kv_head)]) {
    positions.push_back(position);
  }
  return positions;
}

void DictionaryDecoder::Drop(Head& head, int32_t count) {
  // (score, -position): the lowest go first, among equals the later one.
  std::vector<std::pair<double, int32_t>> order;
  int32_t index = 0;
  const auto end = static_cast<int32_t>(head.size()) - rules_.recent;
  for (const auto& [position, entry] : head) {
    if (index >= rules_.sinks && index < end) {
      const double rows = rules_.mean ? position_ - position : 1;
      order.emplace_back(entry.score / rows, -position);
    }
    ++index;
  }
  if (count > 0) {
    EraseLowest(head, std::move(order), count);
  }
}

void DictionaryDecoder::EraseLowest(Head& head, std::vector<std::pair<double, int32_t>> order,
                                    int32_t count) {
  std::sort(order.begin(), order.end());
  const auto cut = static_cast<size_t>(count);
  HEADROOM_CHECK(cut <= order.size());
  if (cut < order.size()) {
    const double stays = order[cut].first;
    smallest_gap_ = std::min(smallest_gap_, (stays - order[cut - 1].first) / stays);
  }
  for (size_t i = 0; i < cut; ++i) {
    head.erase(-order[i].second);
  }
}

void DictionaryDecoder::Rotate(double* head) const {
  const models::ModelConfig& config = model_.config;
  const int32_t pairs = config.head_dim / 2;
  for (int32_t i = 0; i < pairs; ++i) {
    const double angle = position_ * std::pow(config.rope_theta, -2.0 * i / config.head_dim);
    const bool halves = config.rope_pairing == models::RopePairing::kHalves;
    double& a = head[halves ? i : 2 * i];
    double& b = head[halves ? i + pairs : 2 * i + 1];
    const double turned = a * std::cos(angle) - b * std::sin(angle);
    b = a * std::sin(angle) + b * std::cos(angle);
    a = turned;
  }
}

std::vector<double> DictionaryDecoder::Attend(Head& head, const double* query, int32_t layer,
                                              int32_t query_head) {
  const auto dim = static_cast<size_t>(model_.config.head_dim);
  std::vector<double> weights;
  for (const auto& [position, entry] : head) {
    double dot = 0.0;
    for (size_t d = 0; d < dim; ++d) {
      dot += query[d] * entry.k[d];
    }
    weights.push_back(dot / std::sqrt(static_cast<double>(dim)));
  }
  const double top = *std::max_element(weights.begin(), weights.end());
  double total = 0.0;
  for (double& weight : weights) {
    weight = std::exp(weight - top);
    total += weight;
  }
  std::vector<double> out(dim, 0.0);
  for (double& weight : weights) {
    weight /= total;
  }
  if (watcher_) {
    watcher_(layer, query_head, position_, weights);
  }
  size_t i = 0;
  for (auto& [position, entry] : head) {
    const double probability = weights[i++];
    entry.score += observed_ ? probability : 0.0;
    for (size_t d = 0; d < dim; ++d) {
      out[d] += probability * entry.v[d];
    }
  }
  return out;
}

void DictionaryDecoder::RunLayer(int32_t layer, std::vector<double>& hidden) {
  const models::ModelConfig& config = model_.config;
  const models::LayerWeights& weights = model_.weights.layers[static_cast<size_t>(layer)];
  const std::vector<double> x = Normalised(weights.input_norm, config.rms_norm_eps, hidden);
  std::vector<double> q = Times(weights.q_proj, x);
  std::vector<double> k = Times(weights.k_proj, x);
  const std::vector<double> v = Times(weights.v_proj, x);
  std::vector<double> attended;
  for (int32_t kv_head = 0; kv_head < config.num_key_value_heads; ++kv_head) {
    const int64_t begin = int64_t{kv_head} * config.head_dim;
    Rotate(k.data() + begin);
    Head& head = heads_[static_cast<size_t>(layer)][static_cast<size_t>(kv_head)];
    head[position_] = {.k = {k.begin() + begin, k.begin() + begin + config.head_dim},
                       .v = {v.begin() + begin, v.begin() + begin + config.head_dim}};
    for (int32_t g = 0; g < config.group_size(); ++g) {
      double* query = q.data() + (begin * config.group_size() + int64_t{g} * config.head_dim);
      Rotate(query);
      const std::vector<double> out = Attend(head, query, layer, kv_head * config.group_size() + g);
      attended.insert(attended.end(), out.begin(), out.end());
    }
  }
  AddTo(hidden, Times(weights.o_proj, attended));
  const std::vector<double> y =
      Normalised(weights.post_attention_norm, config.rms_norm_eps, hidden);
  std::vector<double> gate = Times(weights.gate_proj, y);
  const std::vector<double> up = Times(weights.up_proj, y);
  for (size_t i = 0; i < gate.size(); ++i) {
    gate[i] = gate[i] / (1.0 + std::exp(-gate[i])) * up[i];
  }
  AddTo(hidden, Times(weights.down_proj, gate));
}

int32_t DictionaryDecoder::Run(int32_t token) {
  const models::ModelConfig& config = model_.config;
  const float* row = Floats(model_.weights.embed_tokens) + int64_t{token} * config.hidden_size;
  std::vector<double> hidden(row, row + config.hidden_size);
  for (int32_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    RunLayer(layer, hidden);
  }
  ++position_;
  const std::vector<double> logits = Times(
      model_.weights.lm_head, Normalised(model_.weights.final_norm, config.rms_norm_eps, hidden));
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace headroom::testing
