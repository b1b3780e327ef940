#include "tests/support/hand_built_gguf.h"

#include <string>
#include <utility>

#include "base/check.h"
#include "models/tokenizer/utf8.h"
#include "tests/support/hand_built_model.h"
#include "tests/support/model_file_writers.h"

namespace headroom::testing {
namespace {

constexpr int32_t kControlToken = 3;  // GGUF's numbers of token types
constexpr int32_t kNormalToken = 1;

void AddTensor(GgufWriter& file, const std::string& name, const TensorView& tensor, bool is_norm) {
  HEADROOM_CHECK(tensor.dtype == DType::kF32);
  file.data.resize((file.data.size() + file.alignment - 1) / file.alignment * file.alignment);
  std::vector<uint64_t> dims = {static_cast<uint64_t>(tensor.cols)};
  if (!is_norm) {
    dims.push_back(static_cast<uint64_t>(tensor.rows));
  }
  file.tensors.push_back({name, std::move(dims), kTensorF32, file.data.size()});
  const auto* bytes = static_cast<const uint8_t*>(tensor.data);
  file.data.insert(file.data.end(), bytes, bytes + tensor.num_bytes());
}

// A file of architecture "llama" has the two dimensions that turn together side by side.
void AddTurned(GgufWriter& file, const std::string& name, const TensorView& tensor,
               int32_t head_dim) {
  const auto* from = static_cast<const float*>(tensor.data);
  std::vector<float> rows;
  for (int64_t head = 0; head < tensor.rows / head_dim; ++head) {
    for (int64_t pair = 0; pair < head_dim / 2; ++pair) {
      for (const int64_t row : {head * head_dim + pair, head * head_dim + pair + head_dim / 2}) {
        rows.insert(rows.end(), from + row * tensor.cols, from + (row + 1) * tensor.cols);
      }
    }
  }
  TensorView turned = tensor;
  turned.data = rows.data();
  AddTensor(file, name, turned, false);
}

void AddVocabulary(GgufWriter& file, int32_t vocab_size) {
  const auto classes = HandBuiltClasses();
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  for (int32_t id = 0; id < vocab_size; ++id) {
    const engine::TokenClass kind = (*classes)[static_cast<size_t>(id)];
    // A letter of its own (U+4E00 on), "!", "\"", ..., or the one control token.
    std::string piece;
    models::AppendUtf8(static_cast<char32_t>(0x4E00 + id), &piece);
    const std::string marks = ".,;:!?";
    if (kind == engine::TokenClass::kPunctuation) {
      piece = marks.substr(static_cast<size_t>(id) % marks.size(), 1);
    } else if (kind == engine::TokenClass::kSpecial) {
      piece = "<s>";
    }
    tokens.push_back(piece);
    types.push_back(kind == engine::TokenClass::kSpecial ? kControlToken : kNormalToken);
  }
  file.String("tokenizer.ggml.model", "llama").Strings("tokenizer.ggml.tokens", tokens);
  file.Numbers<float>("tokenizer.ggml.scores", kF32, std::vector<float>(tokens.size(), 0.0f));
  file.Numbers<int32_t>("tokenizer.ggml.token_type", kI32, types);
  file.Number<uint32_t>("tokenizer.ggml.bos_token_id", kU32, 0);
}

}  // namespace

std::vector<uint8_t> HandBuiltGguf(const models::LoadedModel& model) {
  const models::ModelConfig& config = model.config;
  GgufWriter file;
  const auto number = [&file](const std::string& key, int32_t value) {
    file.Number<uint32_t>("llama." + key, kU32, static_cast<uint32_t>(value));
  };
  file.String("general.architecture", "llama").String("general.name", config.name);
  number("embedding_length", config.hidden_size);
  number("feed_forward_length", config.intermediate_size);
  number("block_count", config.num_hidden_layers);
  number("context_length", config.max_position_embeddings);
  number("attention.head_count", config.num_attention_heads);
  number("attention.head_count_kv", config.num_key_value_heads);
  number("attention.key_length", config.head_dim);
  number("attention.value_length", config.head_dim);
  file.Number<float>("llama.attention.layer_norm_rms_epsilon", kF32, config.rms_norm_eps);
  file.Number<float>("llama.rope.freq_base", kF32, static_cast<float>(config.rope_theta));
  AddVocabulary(file, config.vocab_size);
  const models::ModelWeights& weights = model.weights;
  AddTensor(file, "token_embd.weight", weights.embed_tokens, false);
  AddTensor(file, "output_norm.weight", weights.final_norm, true);
  AddTensor(file, "output.weight", weights.lm_head, false);
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const models::LayerWeights& layer = weights.layers[i];
    const std::string prefix = "blk." + std::to_string(i) + ".";
    AddTensor(file, prefix + "attn_norm.weight", layer.input_norm, true);
    AddTurned(file, prefix + "attn_q.weight", layer.q_proj, config.head_dim);
    AddTurned(file, prefix + "attn_k.weight", layer.k_proj, config.head_dim);
    AddTensor(file, prefix + "attn_v.weight", layer.v_proj, false);
    AddTensor(file, prefix + "attn_output.weight", layer.o_proj, false);
    AddTensor(file, prefix + "ffn_norm.weight", layer.post_attention_norm, true);
    AddTensor(file, prefix + "ffn_gate.weight", layer.gate_proj, false);
    AddTensor(file, prefix + "ffn_up.weight", layer.up_proj, false);
    AddTensor(file, prefix + "ffn_down.weight", layer.down_proj, false);
  }
  return file.Build();
}

}  // namespace headroom::testing
