// Everything that a model's files say, and the one function that reads them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "models/config.h"
#include "models/tokenizer/tokenizer.h"
#include "models/weights.h"

namespace headroom::models {

// Sampling defaults that the model itself names (generation_config.json); unset = not named.
struct GenerationDefaults {
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<int32_t> top_k;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
};

struct LoadedModel {
  std::string path;  // as given
  std::string name;  // for /v1/models: file stem, directory name, or the builtin's name
  ModelConfig config;
  ModelWeights weights;
  std::unique_ptr<Tokenizer> tokenizer;      // null: the model serves token ids only
  std::optional<std::string> chat_template;  // Jinja source; unset: no chat endpoint
  std::vector<int32_t> eos_token_ids;        // union of all that the files name, ascending
  GenerationDefaults generation_defaults;
  int64_t num_parameters = 0;
};

// `path` is a GGUF file, a Hugging Face directory, or "builtin:NAME". Every error names the file,
// the offset or tensor where it went wrong, what was found and what was wanted. Nothing of the
// files is trusted.
StatusOr<LoadedModel> LoadModel(const std::string& path);

}  // namespace headroom::models
