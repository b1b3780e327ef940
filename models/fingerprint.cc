#include "models/fingerprint.h"

#include <algorithm>
#include <array>
#include <bit>
#include <set>
#include <string_view>

#include "base/sha256.h"
#include "base/thread_pool.h"

namespace headroom::models {
namespace {

// Floats by their bits; doubles as floats, since GGUF files hold no more.
void AddFloat(float value, Sha256* hash) {
  hash->UpdateInteger(static_cast<int64_t>(std::bit_cast<uint32_t>(value)));
}

struct NamedView {
  std::string name;
  const TensorView* view;
};

std::vector<NamedView> AttentionTensors(const ModelWeights& weights) {
  std::vector<NamedView> tensors;
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const LayerWeights& layer = weights.layers[i];
    tensors.push_back({fmt::format("layers.{}.q_proj", i), &layer.q_proj});
    tensors.push_back({fmt::format("layers.{}.k_proj", i), &layer.k_proj});
    tensors.push_back({fmt::format("layers.{}.v_proj", i), &layer.v_proj});
    tensors.push_back({fmt::format("layers.{}.o_proj", i), &layer.o_proj});
  }
  return tensors;
}

std::string TensorHash(const NamedView& tensor) {
  const TensorView& view = *tensor.view;
  Sha256 hash;
  hash.UpdateText(tensor.name);
  hash.UpdateInteger(view.rows);
  hash.UpdateInteger(view.cols);
  hash.UpdateText(GetDTypeInfo(view.dtype).name);
  hash.Update(
      std::span(static_cast<const uint8_t*>(view.data), static_cast<size_t>(view.num_bytes())));
  return hash.FinishText();
}

}  // namespace

std::string ArchHash(const ModelConfig& config) {
  Sha256 hash;
  hash.UpdateText("arch/1");
  hash.UpdateText(config.architecture);
  for (const int32_t value :
       {config.hidden_size, config.intermediate_size, config.num_hidden_layers,
        config.num_attention_heads, config.num_key_value_heads, config.head_dim,
        static_cast<int32_t>(config.tie_word_embeddings),
        static_cast<int32_t>(config.rope_scaling)}) {
    hash.UpdateInteger(value);
  }
  AddFloat(config.rms_norm_eps, &hash);
  AddFloat(static_cast<float>(config.rope_theta), &hash);
  if (config.rope_scaling != RopeScaling::kNone) {
    AddFloat(static_cast<float>(config.rope_factor), &hash);
  }
  if (config.rope_scaling == RopeScaling::kLlama3) {
    AddFloat(static_cast<float>(config.rope_low_freq_factor), &hash);
    AddFloat(static_cast<float>(config.rope_high_freq_factor), &hash);
    hash.UpdateInteger(config.rope_original_max_position);
  }
  hash.UpdateInteger(static_cast<int64_t>(config.rope_freq_factors.size()));
  for (const float factor : config.rope_freq_factors) {
    AddFloat(factor, &hash);
  }
  return hash.FinishText();
}

std::string AttentionWeightsHash(const ModelWeights& weights, int num_threads) {
  const std::vector<NamedView> tensors = AttentionTensors(weights);
  std::vector<std::string> hashes(tensors.size());
  ThreadPool pool(num_threads);
  pool.ParallelFor(static_cast<int64_t>(tensors.size()), [&](int64_t index, int) {
    hashes[static_cast<size_t>(index)] = TensorHash(tensors[static_cast<size_t>(index)]);
  });
  Sha256 hash;
  hash.UpdateText("weights/1");
  for (const std::string& part : hashes) {
    hash.UpdateText(part);
  }
  return hash.FinishText();
}

std::string AttentionWeightsDType(const ModelWeights& weights) {
  std::set<std::string> names;
  for (const NamedView& tensor : AttentionTensors(weights)) {
    names.insert(GetDTypeInfo(tensor.view->dtype).name);
  }
  return fmt::format("{}", fmt::join(names, "+"));
}

std::string VocabHash(const Tokenizer& tokenizer) {
  Sha256 hash;
  hash.UpdateText("vocabulary/1");
  hash.UpdateInteger(tokenizer.vocab_size());
  hash.UpdateInteger(tokenizer.bos_id());
  hash.UpdateInteger(tokenizer.eos_id());
  hash.UpdateInteger(tokenizer.add_bos() ? 1 : 0);
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    hash.UpdateText(tokenizer.TokenPiece(id));
    hash.UpdateInteger(static_cast<int64_t>(tokenizer.Type(id)));
  }
  return hash.FinishText();
}

std::string PromptHash(std::span<const int32_t> ids) {
  Sha256 hash;
  hash.UpdateText("prompt/1");
  for (const int32_t id : ids) {
    hash.UpdateInteger(id);
  }
  return hash.FinishText();
}

std::string CorpusHash(std::vector<std::string> prompt_hashes) {
  std::sort(prompt_hashes.begin(), prompt_hashes.end());
  Sha256 hash;
  hash.UpdateText("corpus/1");
  for (const std::string& prompt : prompt_hashes) {
    hash.UpdateText(prompt);
  }
  return hash.FinishText();
}

}  // namespace headroom::models
