#include "models/architectures/llama.h"

#include <cmath>
#include <cstdint>
#include <optional>

#include "kernels/dequantize.h"
#include "models/file_error.h"

namespace headroom::models {
namespace {

// A tensor's name in both kinds of file, after "blk.N." or "model.layers.N.".
struct LayerTensorNames {
  const char* gguf;
  const char* hugging_face;
};

// Reads metadata into a config and remembers the first error.
class MetadataReader {
 public:
  explicit MetadataReader(const GgufFile& file) : file_(file) {}

  // A 32-bit integer; `fallback` when absent, an error when absent and there is none.
  int32_t Int(const char* key, std::optional<int32_t> fallback = std::nullopt) {
    const StatusOr<std::optional<int64_t>> value = file_.GetInt(key);
    if (!Accept(value.status())) {
      return 0;
    }
    if (!value->has_value()) {
      if (!fallback.has_value()) {
        Accept(InvalidArgument("{}: metadata \"{}\" is missing", file_.path(), key));
      }
      return fallback.value_or(0);
    }
    if (**value < INT32_MIN || **value > INT32_MAX) {
      Accept(FileError(file_.path(), file_.Find(key)->file_offset,
                       "metadata \"{}\" is {}, wanted a 32-bit integer", key, **value));
      return 0;
    }
    return static_cast<int32_t>(**value);
  }

  double Float(const char* key, double fallback) {
    const StatusOr<std::optional<double>> value = file_.GetFloat(key);
    return Accept(value.status()) ? value->value_or(fallback) : fallback;
  }

  std::string String(const char* key) {
    const StatusOr<std::optional<std::string>> value = file_.GetString(key);
    return Accept(value.status()) ? value->value_or("") : "";
  }

  // An error unless the key is absent or has this value.
  void Expect(const char* key, int32_t wanted, const char* meaning) {
    const int32_t value = Int(key, wanted);
    if (status_.ok() && value != wanted) {
      Accept(FileError(file_.path(), file_.Find(key)->file_offset,
                       "metadata \"{}\" is {}, wanted {}: {}", key, value, wanted, meaning));
    }
  }

  bool Accept(const Status& status) {
    if (status_.ok() && !status.ok()) {
      status_ = status;
    }
    return status.ok();
  }

  const Status& status() const { return status_; }

 private:
  const GgufFile& file_;
  Status status_;
};

const NamedTensor* FindTensor(const GgufFile& file, const std::string& name) {
  for (const NamedTensor& tensor : file.tensors()) {
    if (tensor.name == name) {
      return &tensor;
    }
  }
  return nullptr;
}

void ReadRope(const GgufFile& file, MetadataReader& metadata, ModelConfig& config) {
  config.rope_pairing = RopePairing::kInterleaved;
  config.rope_theta = metadata.Float("llama.rope.freq_base", 10000.0);
  metadata.Expect("llama.rope.dimension_count", config.head_dim,
                  "rotating a part of a head is not supported");
  const std::string kind = metadata.String("llama.rope.scaling.type");
  // An older key for linear scaling.
  const double old_factor = metadata.Float("llama.rope.scale_linear", 1.0);
  const double factor = metadata.Float("llama.rope.scaling.factor", old_factor);
  if (kind == "linear" || (kind.empty() && factor != 1.0)) {
    config.rope_scaling = RopeScaling::kLinear;
    config.rope_factor = factor;
  } else if (!kind.empty() && kind != "none") {
    metadata.Accept(FileError(file.path(), file.Find("llama.rope.scaling.type")->file_offset,
                              "metadata \"llama.rope.scaling.type\" is \"{}\", wanted none or "
                              "linear",
                              Printable(kind)));
  }
  const NamedTensor* factors = FindTensor(file, "rope_freqs.weight");
  if (factors == nullptr) {
    return;
  }
  if (factors->shape.size() != 1 || factors->view.cols != config.head_dim / 2 ||
      IsQuantized(factors->view.dtype)) {
    metadata.Accept(FileError(
        file.path(), factors->file_offset, "tensor \"rope_freqs.weight\" is {} {}, wanted [{}] f32",
        ShapeText(factors->shape), GetDTypeInfo(factors->view.dtype).name, config.head_dim / 2));
    return;
  }
  config.rope_freq_factors.resize(static_cast<size_t>(factors->view.cols));
  kernels::DequantizeRow(factors->view.dtype, factors->view.data, factors->view.cols,
                         config.rope_freq_factors.data());
}

StatusOr<ModelConfig> ConfigFromGguf(const GgufFile& file) {
  MetadataReader metadata(file);
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.name = metadata.String("general.name");
  config.hidden_size = metadata.Int("llama.embedding_length");
  config.intermediate_size = metadata.Int("llama.feed_forward_length");
  config.num_hidden_layers = metadata.Int("llama.block_count");
  config.num_attention_heads = metadata.Int("llama.attention.head_count");
  config.num_key_value_heads =
      metadata.Int("llama.attention.head_count_kv", config.num_attention_heads);
  config.max_position_embeddings = metadata.Int("llama.context_length");
  config.rms_norm_eps =
      static_cast<float>(metadata.Float("llama.attention.layer_norm_rms_epsilon", 1e-5));
  const int32_t heads = config.num_attention_heads;
  const bool divides = heads > 0 && config.hidden_size % heads == 0;
  config.head_dim =
      metadata.Int("llama.attention.key_length", divides ? config.hidden_size / heads : 0);
  metadata.Expect("llama.attention.value_length", config.head_dim,
                  "keys and values of different widths are not supported");
  metadata.Expect("llama.expert_count", 0, "mixtures of experts are not supported");
  metadata.Expect("llama.attention.sliding_window", 0, "sliding windows are not supported");
  metadata.Expect("split.count", 1, "models split over several files are not supported");
  // The embedding's rows are the vocabulary; the key only repeats them.
  const NamedTensor* embedding = FindTensor(file, "token_embd.weight");
  if (embedding != nullptr && embedding->view.rows <= INT32_MAX) {
    config.vocab_size = static_cast<int32_t>(embedding->view.rows);
    metadata.Expect("llama.vocab_size", config.vocab_size, "the rows of token_embd.weight");
  } else {
    config.vocab_size = metadata.Int("llama.vocab_size", 1);
  }
  config.tie_word_embeddings = FindTensor(file, "output.weight") == nullptr;
  ReadRope(file, metadata, config);
  if (!metadata.status().ok()) {
    return metadata.status();
  }
  return config;
}

std::vector<TensorRule> TensorRules(const ModelConfig& config, TensorNaming naming,
                                    ModelWeights& weights) {
  const bool gguf = naming == TensorNaming::kGguf;
  const int64_t hidden = config.hidden_size;
  const int64_t intermediate = config.intermediate_size;
  const int64_t query = config.query_width();
  const int64_t kv = config.kv_width();
  std::vector<TensorRule> rules;
  rules.push_back({gguf ? "token_embd.weight" : "model.embed_tokens.weight", config.vocab_size,
                   hidden, &weights.embed_tokens, true});
  rules.push_back(
      {gguf ? "output_norm.weight" : "model.norm.weight", 0, hidden, &weights.final_norm, true});
  // A tied Hugging Face file may repeat the embedding here; it counts for nothing.
  const bool tied = config.tie_word_embeddings;
  rules.push_back({gguf ? "output.weight" : "lm_head.weight", config.vocab_size, hidden,
                   tied ? nullptr : &weights.lm_head, !tied});
  if (gguf) {
    // Read with the configuration, and checked there.
    rules.push_back({"rope_freqs.weight", 0, config.head_dim / 2, nullptr, false});
  }
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    LayerWeights& layer = weights.layers[i];
    const auto add = [&](const LayerTensorNames& names, int64_t rows, int64_t cols,
                         TensorView* target) {
      rules.push_back({gguf ? fmt::format("blk.{}.{}.weight", i, names.gguf)
                            : fmt::format("model.layers.{}.{}.weight", i, names.hugging_face),
                       rows, cols, target, true});
    };
    add({"attn_norm", "input_layernorm"}, 0, hidden, &layer.input_norm);
    add({"attn_q", "self_attn.q_proj"}, query, hidden, &layer.q_proj);
    add({"attn_k", "self_attn.k_proj"}, kv, hidden, &layer.k_proj);
    add({"attn_v", "self_attn.v_proj"}, kv, hidden, &layer.v_proj);
    add({"attn_output", "self_attn.o_proj"}, hidden, query, &layer.o_proj);
    add({"ffn_norm", "post_attention_layernorm"}, 0, hidden, &layer.post_attention_norm);
    add({"ffn_gate", "mlp.gate_proj"}, intermediate, hidden, &layer.gate_proj);
    add({"ffn_up", "mlp.up_proj"}, intermediate, hidden, &layer.up_proj);
    add({"ffn_down", "mlp.down_proj"}, hidden, intermediate, &layer.down_proj);
    if (!gguf) {
      // A buffer that old checkpoints kept; it follows from the configuration.
      rules.push_back({fmt::format("model.layers.{}.self_attn.rotary_emb.inv_freq", i), 0,
                       config.head_dim / 2, nullptr, false});
    }
  }
  return rules;
}

}  // namespace

Architecture LlamaArchitecture() {
  return {"LlamaForCausalLM", "llama", &ConfigFromGguf, &TensorRules};
}

}  // namespace headroom::models
