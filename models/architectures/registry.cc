#include "models/architectures/registry.h"

#include <array>

#include "models/architectures/llama.h"

namespace headroom::models {
namespace {

const std::array<Architecture, 1>& Architectures() {
  static const std::array<Architecture, 1> architectures = {LlamaArchitecture()};
  return architectures;
}

}  // namespace

const Architecture* FindHuggingFaceArchitecture(std::string_view name) {
  for (const Architecture& architecture : Architectures()) {
    if (name == architecture.hugging_face_name) {
      return &architecture;
    }
  }
  return nullptr;
}

const Architecture* FindGgufArchitecture(std::string_view name) {
  for (const Architecture& architecture : Architectures()) {
    if (name == architecture.gguf_name) {
      return &architecture;
    }
  }
  return nullptr;
}

std::string KnownArchitectures(TensorNaming naming) {
  std::string names;
  for (const Architecture& architecture : Architectures()) {
    names += names.empty() ? "" : ", ";
    names +=
        naming == TensorNaming::kGguf ? architecture.gguf_name : architecture.hugging_face_name;
  }
  return names;
}

}  // namespace headroom::models
