// config.json and generation_config.json of a Hugging Face directory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "models/config.h"
#include "models/loaded_model.h"

namespace headroom::models {

struct HfConfig {
  ModelConfig config;
  std::vector<int32_t> eos_token_ids;  // as named; may be empty
};

// The LLaMA family's fields, with transformers' defaults where they are absent. Refused, naming the
// field: biases, other activations than silu, rope kinds other than default, linear and llama3,
// rotation of a part of a head.
StatusOr<HfConfig> ParseHfConfig(std::string_view text, const std::string& path);

struct HfGenerationConfig {
  GenerationDefaults defaults;
  std::vector<int32_t> eos_token_ids;
};

StatusOr<HfGenerationConfig> ParseHfGenerationConfig(std::string_view text,
                                                     const std::string& path);

}  // namespace headroom::models
