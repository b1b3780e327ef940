#include "tests/support/tiny_model.h"

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "base/philox.h"

namespace headroom::testing {
namespace {

// Makes f32 tensors and keeps their memory alive in the weights.
class TensorMaker {
 public:
  TensorMaker(uint64_t seed, models::ModelWeights& weights) : random_(seed), weights_(weights) {}

  // Uniform in [mean - half_width, mean + half_width).
  TensorView Make(int64_t rows, int64_t cols, double mean, double half_width) {
    auto values = std::make_shared<std::vector<float>>(static_cast<size_t>(rows * cols));
    for (float& value : *values) {
      value = static_cast<float>(mean + half_width * (2.0 * random_.Uniform(counter_++) - 1.0));
    }
    const TensorView view = {
        .data = values->data(), .dtype = DType::kF32, .rows = rows, .cols = cols};
    weights_.storage.push_back(std::move(values));
    return view;
  }

 private:
  Philox random_;
  uint64_t counter_ = 0;
  models::ModelWeights& weights_;
};

models::ModelConfig MakeConfig(const TinyShape& shape) {
  models::ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.name = "tiny";
  config.vocab_size = shape.vocab_size;
  config.hidden_size = shape.hidden_size;
  config.intermediate_size = shape.intermediate_size;
  config.num_hidden_layers = shape.num_layers;
  config.num_attention_heads = shape.num_heads;
  config.num_key_value_heads = shape.num_kv_heads;
  config.head_dim = shape.head_dim;
  config.max_position_embeddings = 8192;
  config.tie_word_embeddings = true;
  config.rope_pairing = shape.pairing;
  return config;
}

}  // namespace

models::LoadedModel MakeTinyModel(const TinyShape& shape) {
  models::LoadedModel model;
  model.path = "tiny";
  model.name = "tiny";
  model.config = MakeConfig(shape);
  const models::ModelConfig& config = model.config;
  models::ModelWeights& weights = model.weights;
  TensorMaker maker(shape.seed, weights);
  const double in = 1.7 / std::sqrt(static_cast<double>(config.hidden_size));
  const double out = 1.7 / std::sqrt(static_cast<double>(config.query_width()));
  const double down = 1.7 / std::sqrt(static_cast<double>(config.intermediate_size));
  weights.embed_tokens = maker.Make(config.vocab_size, config.hidden_size, 0.0, 1.0);
  weights.lm_head = weights.embed_tokens;
  weights.final_norm = maker.Make(1, config.hidden_size, 0.3, 0.1);
  for (int32_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    models::LayerWeights made;
    made.input_norm = maker.Make(1, config.hidden_size, 1.0, 0.2);
    made.q_proj = maker.Make(config.query_width(), config.hidden_size, 0.0, 1.4 * in);
    made.k_proj = maker.Make(config.kv_width(), config.hidden_size, 0.0, 1.4 * in);
    made.v_proj = maker.Make(config.kv_width(), config.hidden_size, 0.0, in);
    made.o_proj = maker.Make(config.hidden_size, config.query_width(), 0.0, out);
    made.post_attention_norm = maker.Make(1, config.hidden_size, 1.0, 0.2);
    made.gate_proj = maker.Make(config.intermediate_size, config.hidden_size, 0.0, in);
    made.up_proj = maker.Make(config.intermediate_size, config.hidden_size, 0.0, in);
    made.down_proj = maker.Make(config.hidden_size, config.intermediate_size, 0.0, 0.5 * down);
    weights.layers.push_back(made);
  }
  return model;
}

}  // namespace headroom::testing
