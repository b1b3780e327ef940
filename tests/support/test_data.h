// Where tests find their data.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace headroom::testing {

// HEADROOM_SOURCE_DIR comes from the build.
inline std::string SourcePath(const std::string& relative) {
  return std::string(HEADROOM_SOURCE_DIR) + "/" + relative;
}

// A file of the shared data folder ($HEADROOM_SHARED_DATA, else ../shared/data beside the
// repository), or nothing where it is absent.
inline std::optional<std::string> SharedDataPath(const std::string& relative) {
  const char* base = std::getenv("HEADROOM_SHARED_DATA");
  const std::string path =
      (base != nullptr ? std::string(base) : SourcePath("../shared/data")) + "/" + relative;
  if (!std::filesystem::exists(path)) {
    return std::nullopt;
  }
  return path;
}

// The SmolLM2 GGUF that scripts/quickstart.sh fetches, or nothing where it is absent.
inline std::optional<std::string> SmolLm2Path() {
  const char* path = std::getenv("HEADROOM_SMOLLM2_GGUF");
  std::string file;
  if (path != nullptr) {
    file = path;
  } else if (const char* home = std::getenv("HOME"); home != nullptr) {
    file = std::string(home) + "/.cache/headroom/SmolLM2-135M-Instruct.Q4_1.gguf";
  }
  if (file.empty() || !std::filesystem::exists(file)) {
    return std::nullopt;
  }
  return file;
}

}  // namespace headroom::testing
