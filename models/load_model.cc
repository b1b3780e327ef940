#include <filesystem>

#include "models/loaded_model.h"
#include "models/model_files.h"

namespace headroom::models {
namespace {

constexpr std::string_view kBuiltinPrefix = "builtin:";

StatusOr<LoadedModel> LoadFrom(const std::string& path) {
  if (path.starts_with(kBuiltinPrefix)) {
    return LoadBuiltinModel(std::string_view(path).substr(kBuiltinPrefix.size()));
  }
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return LoadHuggingFaceModel(path);
  }
  return LoadGgufModel(path);
}

std::string NameOf(const std::string& path) {
  if (path.starts_with(kBuiltinPrefix)) {
    return path.substr(kBuiltinPrefix.size());
  }
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error).lexically_normal();
  if (std::filesystem::is_directory(absolute, error)) {
    // A trailing slash leaves an empty last part.
    return (absolute.has_filename() ? absolute : absolute.parent_path()).filename().string();
  }
  return absolute.stem().string();
}

}  // namespace

StatusOr<LoadedModel> LoadModel(const std::string& path) {
  HEADROOM_ASSIGN_OR_RETURN(LoadedModel model, LoadFrom(path));
  model.path = path;
  model.name = NameOf(path);
  return model;
}

}  // namespace headroom::models
