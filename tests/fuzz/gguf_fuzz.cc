// Feeds arbitrary bytes to the GGUF reader and to everything that reads its metadata.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "models/architectures/registry.h"
#include "models/gguf.h"
#include "models/gguf_tokenizer.h"

namespace headroom::models {
namespace {

// Keeps the reads of tensor data from being optimised away.
volatile uint8_t sink;

void TouchTensors(const GgufFile& file) {
  for (const NamedTensor& tensor : file.tensors()) {
    const auto* data = static_cast<const uint8_t*>(tensor.view.data);
    sink = data[0];
    sink = data[tensor.view.num_bytes() - 1];
  }
}

void ReadEntries(const GgufFile& file) {
  for (const GgufEntry& entry : file.entries()) {
    if (file.Find(entry.key) != &entry || GgufValueText(entry).empty()) {
      std::abort();
    }
    (void)file.GetInt(entry.key);
    (void)file.GetFloat(entry.key);
    (void)file.GetBool(entry.key);
    (void)file.GetString(entry.key);
    (void)file.GetStrings(entry.key);
    (void)file.GetFloats(entry.key);
    (void)file.GetInts(entry.key);
  }
}

void ReadModel(const GgufFile& file) {
  const StatusOr<std::optional<TokenizerData>> tokenizer = ReadGgufTokenizer(file);
  if (tokenizer.ok() && tokenizer->has_value()) {
    (void)ReadGgufEosIds(file, **tokenizer);
  }
  const Architecture* architecture = FindGgufArchitecture("llama");
  const StatusOr<ModelConfig> config = architecture->config_from_gguf(file);
  if (!config.ok() || !ValidateConfig(*config).ok()) {
    return;
  }
  ModelWeights weights;
  weights.layers.resize(static_cast<size_t>(config->num_hidden_layers));
  (void)AssignTensors(architecture->tensor_rules(*config, TensorNaming::kGguf, weights),
                      file.tensors(), file.path());
}

}  // namespace
}  // namespace headroom::models

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom::models;
  const headroom::StatusOr<GgufFile> file = GgufFile::Parse({data, size}, "fuzz.gguf");
  if (file.ok()) {
    TouchTensors(*file);
    ReadEntries(*file);
    ReadModel(*file);
  }
  return 0;
}
