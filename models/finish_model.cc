#include <algorithm>
#include <cstring>

#include "models/architectures/registry.h"
#include "models/hf_config.h"
#include "models/model_files.h"
#include "models/safetensors.h"

namespace headroom::models {
namespace {

int64_t NumElements(const TensorView& view) { return view.rows * view.cols; }

int64_t CountParameters(const ModelConfig& config, const ModelWeights& weights) {
  int64_t count = NumElements(weights.embed_tokens) + NumElements(weights.final_norm);
  if (!config.tie_word_embeddings) {
    count += NumElements(weights.lm_head);
  }
  for (const LayerWeights& layer : weights.layers) {
    for (const TensorView* view :
         {&layer.input_norm, &layer.q_proj, &layer.k_proj, &layer.v_proj, &layer.o_proj,
          &layer.post_attention_norm, &layer.gate_proj, &layer.up_proj, &layer.down_proj}) {
      count += NumElements(*view);
    }
  }
  return count;
}

// Sorts, drops repetitions, and refuses ids that the model cannot produce.
Status FinishEosIds(const std::string& path, LoadedModel& model) {
  std::vector<int32_t>& ids = model.eos_token_ids;
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  if (!ids.empty() && (ids.front() < 0 || ids.back() >= model.config.vocab_size)) {
    return InvalidArgument("{}: end-of-sequence ids {}..{}, wanted 0..{}", path, ids.front(),
                           ids.back(), model.config.vocab_size - 1);
  }
  return OkStatus();
}

}  // namespace

void AlignTensors(std::vector<NamedTensor>& tensors,
                  std::vector<std::shared_ptr<const void>>& storage) {
  for (NamedTensor& tensor : tensors) {
    const size_t element_bytes = tensor.view.dtype == DType::kF32 ? 4 : 2;
    if (reinterpret_cast<uintptr_t>(tensor.view.data) % element_bytes == 0) {
      continue;
    }
    const auto size = static_cast<size_t>(tensor.view.num_bytes());
    auto block = std::make_shared<std::vector<uint8_t>>(size);  // operator new aligns to 16
    std::memcpy(block->data(), tensor.view.data, size);
    tensor.view.data = block->data();
    storage.push_back(std::move(block));
  }
}

Status FinishModel(const std::vector<NamedTensor>& tensors, TensorNaming naming,
                   const std::string& path, LoadedModel& model) {
  const Architecture* architecture = FindHuggingFaceArchitecture(model.config.architecture);
  if (architecture == nullptr) {
    return Unimplemented("{}: architecture \"{}\", wanted one of: {}", path,
                         model.config.architecture, KnownArchitectures(TensorNaming::kHuggingFace));
  }
  if (const Status status = ValidateConfig(model.config); !status.ok()) {
    return InvalidArgument("{}: {}", path, StatusMessage(status));
  }
  ModelWeights& weights = model.weights;
  weights.layers.resize(static_cast<size_t>(model.config.num_hidden_layers));
  HEADROOM_RETURN_IF_ERROR(
      AssignTensors(architecture->tensor_rules(model.config, naming, weights), tensors, path));
  if (model.config.tie_word_embeddings) {
    weights.lm_head = weights.embed_tokens;
  }
  model.num_parameters = CountParameters(model.config, weights);
  return FinishEosIds(path, model);
}

StatusOr<LoadedModel> LoadFromMemory(std::string_view config_json, std::span<const uint8_t> weights,
                                     const std::string& path) {
  HEADROOM_ASSIGN_OR_RETURN(HfConfig config, ParseHfConfig(config_json, path + "/config.json"));
  const std::string file = path + "/model.safetensors";
  HEADROOM_ASSIGN_OR_RETURN(std::vector<NamedTensor> tensors, ParseSafetensors(weights, file));
  LoadedModel model;
  model.config = std::move(config.config);
  model.eos_token_ids = std::move(config.eos_token_ids);
  AlignTensors(tensors, model.weights.storage);
  HEADROOM_RETURN_IF_ERROR(FinishModel(tensors, TensorNaming::kHuggingFace, file, model));
  return model;
}

}  // namespace headroom::models
