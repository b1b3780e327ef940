// The three places that LoadModel reads from. Each returns a whole LoadedModel but `path` and
// `name`.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "models/config.h"
#include "models/loaded_model.h"
#include "models/tensor_table.h"

namespace headroom::models {

StatusOr<LoadedModel> LoadGgufModel(const std::string& path);
StatusOr<LoadedModel> LoadHuggingFaceModel(const std::string& directory);
StatusOr<LoadedModel> LoadBuiltinModel(std::string_view name);

// Shared by all: checks the configuration, fills `model.weights` from the tensors, ties the
// embedding, counts the parameters and checks that ids lie in the vocabulary. `model.config` and
// `model.eos_token_ids` are set before.
Status FinishModel(const std::vector<NamedTensor>& tensors, TensorNaming naming,
                   const std::string& path, LoadedModel& model);

// A model of config.json's text and one safetensors file's bytes. The bytes must stay alive as long
// as the weights: the caller adds them to `weights.storage`, or they are static.
StatusOr<LoadedModel> LoadFromMemory(std::string_view config_json, std::span<const uint8_t> weights,
                                     const std::string& path);

// Copies every tensor whose data is not aligned to its elements into a block of `storage`.
void AlignTensors(std::vector<NamedTensor>& tensors,
                  std::vector<std::shared_ptr<const void>>& storage);

}  // namespace headroom::models
