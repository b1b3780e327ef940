// The shape and switches of a LLaMA-family model, with Hugging Face's field names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace headroom::models {

// Which two dimensions of a head RoPE rotates together.
enum class RopePairing : uint8_t {
  kHalves,       // i and i + head_dim / 2: Hugging Face files
  kInterleaved,  // 2i and 2i + 1: GGUF files of the llama architecture (their rows are permuted)
};

enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3 };

struct ModelConfig {
  std::string architecture;  // the Hugging Face class: "LlamaForCausalLM"
  std::string name;          // what the file calls itself; may be empty
  int32_t vocab_size = 0;    // rows of the embedding matrix
  int32_t hidden_size = 0;
  int32_t intermediate_size = 0;
  int32_t num_hidden_layers = 0;
  int32_t num_attention_heads = 0;
  int32_t num_key_value_heads = 0;
  int32_t head_dim = 0;  // even
  float rms_norm_eps = 1e-5f;
  int32_t max_position_embeddings = 0;
  bool tie_word_embeddings = false;

  double rope_theta = 10000.0;
  RopePairing rope_pairing = RopePairing::kHalves;
  RopeScaling rope_scaling = RopeScaling::kNone;
  double rope_factor = 1.0;                // kLinear, kLlama3
  double rope_low_freq_factor = 1.0;       // kLlama3
  double rope_high_freq_factor = 4.0;      // kLlama3
  int32_t rope_original_max_position = 0;  // kLlama3
  std::vector<float> rope_freq_factors;    // GGUF rope_freqs: divides each frequency; may be empty

  int32_t query_width() const { return num_attention_heads * head_dim; }
  int32_t kv_width() const { return num_key_value_heads * head_dim; }
  int32_t group_size() const { return num_attention_heads / num_key_value_heads; }
};

// Checks ranges, divisibility and sizes that would overflow; the error lists every fault.
Status ValidateConfig(const ModelConfig& config);

// The inverse frequency of each rotated pair, scaling applied: [head_dim / 2], in double.
// Source of kLlama3: the published Llama 3.1 rope scaling rule.
std::vector<double> RopeInverseFrequencies(const ModelConfig& config);

}  // namespace headroom::models
