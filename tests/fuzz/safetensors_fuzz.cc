// Feeds arbitrary bytes to the safetensors reader and to the readers of the JSON files beside it.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "models/hf_config.h"
#include "models/safetensors.h"

namespace {

// Keeps the reads of tensor data from being optimised away.
volatile uint8_t sink;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom::models;
  const auto tensors = ParseSafetensors({data, size}, "fuzz.safetensors");
  if (tensors.ok()) {
    for (const NamedTensor& tensor : *tensors) {
      const auto* bytes = static_cast<const uint8_t*>(tensor.view.data);
      sink = bytes[0];
      sink = bytes[tensor.view.num_bytes() - 1];
    }
  }
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)ParseSafetensorsIndex(text, "fuzz.index.json");
  const auto config = ParseHfConfig(text, "config.json");
  if (config.ok()) {
    (void)headroom::models::ValidateConfig(config->config);
  }
  (void)ParseHfGenerationConfig(text, "generation_config.json");
  return 0;
}
