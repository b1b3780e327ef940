#include "models/config.h"

#include <cmath>
#include <numbers>

namespace headroom::models {
namespace {

// Generous ceilings: far above any published model, far below where products of them overflow.
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kMaxWidth = int64_t{1} << 20;
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxHeads = 1024;
constexpr int64_t kMaxHeadDim = 1024;
constexpr int64_t kMaxPositions = int64_t{1} << 28;

class Faults {
 public:
  void Range(const char* field, int64_t value, int64_t low, int64_t high) {
    if (value < low || value > high) {
      Add(fmt::format("{} is {}, wanted {}..{}", field, value, low, high));
    }
  }
  void Positive(const char* field, double value) {
    if (!std::isfinite(value) || value <= 0.0) {
      Add(fmt::format("{} is {}, wanted a finite number above 0", field, value));
    }
  }
  void Add(const std::string& fault) {
    text_ += text_.empty() ? "" : "; ";
    text_ += fault;
  }
  Status ToStatus() const {
    return text_.empty() ? OkStatus() : InvalidArgument("model configuration: {}", text_);
  }

 private:
  std::string text_;
};

void CheckRope(const ModelConfig& config, Faults& faults) {
  faults.Positive("rope_theta", config.rope_theta);
  if (config.rope_scaling != RopeScaling::kNone) {
    faults.Positive("rope_factor", config.rope_factor);
  }
  if (config.rope_scaling == RopeScaling::kLlama3) {
    faults.Positive("rope_low_freq_factor", config.rope_low_freq_factor);
    faults.Positive("rope_high_freq_factor", config.rope_high_freq_factor);
    faults.Range("rope_original_max_position", config.rope_original_max_position, 1, kMaxPositions);
    if (!(config.rope_high_freq_factor > config.rope_low_freq_factor)) {
      faults.Add(fmt::format("rope_high_freq_factor {} is not above rope_low_freq_factor {}",
                             config.rope_high_freq_factor, config.rope_low_freq_factor));
    }
  }
  if (config.rope_freq_factors.empty()) {
    return;
  }
  if (static_cast<int64_t>(config.rope_freq_factors.size()) * 2 != config.head_dim) {
    faults.Add(fmt::format("rope_freq_factors has {} entries, wanted head_dim / 2 = {}",
                           config.rope_freq_factors.size(), config.head_dim / 2));
  }
  for (size_t i = 0; i < config.rope_freq_factors.size(); ++i) {
    const float factor = config.rope_freq_factors[i];
    if (!std::isfinite(factor) || factor <= 0.0f) {
      faults.Add(
          fmt::format("rope_freq_factors[{}] is {}, wanted a finite number above 0", i, factor));
      return;
    }
  }
}

double Llama3Frequency(const ModelConfig& config, double frequency) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const double original = config.rope_original_max_position;
  if (wavelength < original / config.rope_high_freq_factor) {
    return frequency;
  }
  if (wavelength > original / config.rope_low_freq_factor) {
    return frequency / config.rope_factor;
  }
  const double blend = (original / wavelength - config.rope_low_freq_factor) /
                       (config.rope_high_freq_factor - config.rope_low_freq_factor);
  return (1.0 - blend) * frequency / config.rope_factor + blend * frequency;
}

}  // namespace

Status ValidateConfig(const ModelConfig& config) {
  Faults faults;
  faults.Range("vocab_size", config.vocab_size, 1, kMaxVocab);
  faults.Range("hidden_size", config.hidden_size, 1, kMaxWidth);
  faults.Range("intermediate_size", config.intermediate_size, 1, kMaxWidth);
  faults.Range("num_hidden_layers", config.num_hidden_layers, 1, kMaxLayers);
  faults.Range("num_attention_heads", config.num_attention_heads, 1, kMaxHeads);
  faults.Range("num_key_value_heads", config.num_key_value_heads, 1, kMaxHeads);
  faults.Range("head_dim", config.head_dim, 2, kMaxHeadDim);
  faults.Range("max_position_embeddings", config.max_position_embeddings, 1, kMaxPositions);
  if (config.head_dim % 2 != 0) {
    faults.Add(fmt::format("head_dim is {}, wanted an even number", config.head_dim));
  }
  if (config.num_key_value_heads > 0 &&
      config.num_attention_heads % config.num_key_value_heads != 0) {
    faults.Add(fmt::format("num_attention_heads {} is not a multiple of num_key_value_heads {}",
                           config.num_attention_heads, config.num_key_value_heads));
  }
  faults.Positive("rms_norm_eps", static_cast<double>(config.rms_norm_eps));
  CheckRope(config, faults);
  return faults.ToStatus();
}

std::vector<double> RopeInverseFrequencies(const ModelConfig& config) {
  std::vector<double> frequencies(static_cast<size_t>(config.head_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    double frequency = std::pow(config.rope_theta, -2.0 * static_cast<double>(i) / config.head_dim);
    switch (config.rope_scaling) {
      case RopeScaling::kNone:
        break;
      case RopeScaling::kLinear:
        frequency /= config.rope_factor;
        break;
      case RopeScaling::kLlama3:
        frequency = Llama3Frequency(config, frequency);
        break;
    }
    if (!config.rope_freq_factors.empty()) {
      frequency /= static_cast<double>(config.rope_freq_factors[i]);
    }
    frequencies[i] = frequency;
  }
  return frequencies;
}

}  // namespace headroom::models
