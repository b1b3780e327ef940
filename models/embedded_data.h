// Files that the build puts into the binary.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace headroom::models {

struct EmbeddedModel {
  std::string_view name;
  std::string_view config_json;
  std::span<const uint8_t> safetensors;  // aligned to 64 bytes; static
};

std::span<const EmbeddedModel> EmbeddedModels();

}  // namespace headroom::models
