// The architectures that Headroom runs. A new one is a file beside this one and a line in
// registry.cc.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "models/config.h"
#include "models/gguf.h"
#include "models/tensor_table.h"
#include "models/weights.h"

namespace headroom::models {

struct Architecture {
  const char* hugging_face_name;  // the class in config.json: "LlamaForCausalLM"
  const char* gguf_name;          // general.architecture: "llama"

  // The configuration out of GGUF metadata (config.json has one reader for all, hf_config.h).
  StatusOr<ModelConfig> (*config_from_gguf)(const GgufFile& file);

  // Every tensor that the architecture knows. `weights.layers` is sized; the rules point into
  // `weights`, which must outlive them.
  std::vector<TensorRule> (*tensor_rules)(const ModelConfig& config, TensorNaming naming,
                                          ModelWeights& weights);
};

const Architecture* FindHuggingFaceArchitecture(std::string_view name);  // null when unknown
const Architecture* FindGgufArchitecture(std::string_view name);         // null when unknown

// The known names, for errors: "llama, ..."
std::string KnownArchitectures(TensorNaming naming);

}  // namespace headroom::models
