#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "base/log.h"
#include "base/mapped_file.h"
#include "models/file_error.h"
#include "models/hf_config.h"
#include "models/model_files.h"
#include "models/safetensors.h"

namespace headroom::models {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxConfigBytes = 16 << 20;
constexpr uint64_t kMaxIndexBytes = 100'000'000;

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

StatusOr<std::string> ReadText(const std::string& path, uint64_t max_bytes) {
  HEADROOM_ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> file, MappedFile::Open(path));
  if (file->bytes().size() > max_bytes) {
    return InvalidArgument("{}: {} bytes, wanted at most {}", path, file->bytes().size(),
                           max_bytes);
  }
  return std::string(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
}

// Maps one weight file and appends its tensors.
Status AddFile(const std::string& path, std::vector<NamedTensor>& tensors, LoadedModel& model) {
  HEADROOM_ASSIGN_OR_RETURN(std::shared_ptr<MappedFile> mapped, MappedFile::Open(path));
  HEADROOM_ASSIGN_OR_RETURN(std::vector<NamedTensor> found,
                            ParseSafetensors(mapped->bytes(), path));
  model.weights.storage.push_back(std::move(mapped));
  std::move(found.begin(), found.end(), std::back_inserter(tensors));
  return OkStatus();
}

// Whether what an index names lies in the model's directory. A hub cache keeps its files in
// MODEL/blobs and links to them from MODEL/snapshots/REVISION: such links count as well.
bool IsOwnFile(const std::string& directory, const std::string& path) {
  std::error_code error;
  if (!fs::is_symlink(fs::symlink_status(path, error))) {
    return true;
  }
  const fs::path target = fs::canonical(path, error);
  if (error) {
    return false;
  }
  const fs::path blobs = fs::canonical(fs::path(directory) / ".." / ".." / "blobs", error);
  return !error && target.parent_path() == blobs;
}

// Adds a file that the index names, whose tensors must be those that the index places there.
Status AddShard(const std::string& directory, const std::string& name,
                const std::map<std::string, std::string>& weight_map,
                std::vector<NamedTensor>& tensors, LoadedModel& model) {
  const std::string path = directory + "/" + name;
  if (!IsOwnFile(directory, path)) {
    return InvalidArgument(
        "{}: a file named by an index must not be a link, but to ../../blobs of a hub cache", path);
  }
  const size_t first = tensors.size();
  HEADROOM_RETURN_IF_ERROR(AddFile(path, tensors, model));
  for (size_t i = first; i < tensors.size(); ++i) {
    const auto place = weight_map.find(tensors[i].name);
    if (place == weight_map.end() || place->second != name) {
      return FileError(path, tensors[i].file_offset, "tensor \"{}\", which the index places in {}",
                       Printable(tensors[i].name),
                       place == weight_map.end() ? "no file" : place->second);
    }
  }
  return OkStatus();
}

StatusOr<std::vector<NamedTensor>> ReadTensors(const std::string& directory, LoadedModel& model) {
  std::vector<NamedTensor> tensors;
  const std::string index_path = directory + "/model.safetensors.index.json";
  const std::string single_path = directory + "/model.safetensors";
  if (Exists(single_path) || !Exists(index_path)) {
    HEADROOM_RETURN_IF_ERROR(AddFile(single_path, tensors, model));
    return tensors;
  }
  HEADROOM_ASSIGN_OR_RETURN(const std::string text, ReadText(index_path, kMaxIndexBytes));
  HEADROOM_ASSIGN_OR_RETURN(const auto weight_map, ParseSafetensorsIndex(text, index_path));
  std::set<std::string> files;
  for (const auto& [tensor, file] : weight_map) {
    files.insert(file);
  }
  for (const std::string& file : files) {
    HEADROOM_RETURN_IF_ERROR(AddShard(directory, file, weight_map, tensors, model));
  }
  // Every tensor found is in the map, once; so equal counts mean that none is missing.
  if (tensors.size() != weight_map.size()) {
    std::set<std::string_view> names;
    for (const NamedTensor& tensor : tensors) {
      names.insert(tensor.name);
    }
    for (const auto& [tensor, file] : weight_map) {
      if (!names.contains(tensor)) {
        return InvalidArgument("{}: tensor \"{}\" is not in {}", index_path, Printable(tensor),
                               file);
      }
    }
  }
  return tensors;
}

void NoteUnreadTokenizer(const std::string& directory) {
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    if (Exists(directory + "/" + name)) {
      LogWarning("event=tokenizer_not_read file={}/{} effect=token_ids_only", directory, name);
      return;
    }
  }
}

}  // namespace

StatusOr<LoadedModel> LoadHuggingFaceModel(const std::string& directory) {
  const std::string config_path = directory + "/config.json";
  HEADROOM_ASSIGN_OR_RETURN(const std::string text, ReadText(config_path, kMaxConfigBytes));
  HEADROOM_ASSIGN_OR_RETURN(HfConfig config, ParseHfConfig(text, config_path));
  LoadedModel model;
  model.config = std::move(config.config);
  model.eos_token_ids = std::move(config.eos_token_ids);
  const std::string generation_path = directory + "/generation_config.json";
  if (Exists(generation_path)) {
    HEADROOM_ASSIGN_OR_RETURN(const std::string generation_text,
                              ReadText(generation_path, kMaxConfigBytes));
    HEADROOM_ASSIGN_OR_RETURN(const HfGenerationConfig generation,
                              ParseHfGenerationConfig(generation_text, generation_path));
    model.generation_defaults = generation.defaults;
    model.eos_token_ids.insert(model.eos_token_ids.end(), generation.eos_token_ids.begin(),
                               generation.eos_token_ids.end());
  }
  HEADROOM_ASSIGN_OR_RETURN(std::vector<NamedTensor> tensors, ReadTensors(directory, model));
  AlignTensors(tensors, model.weights.storage);
  HEADROOM_RETURN_IF_ERROR(FinishModel(tensors, TensorNaming::kHuggingFace, directory, model));
  NoteUnreadTokenizer(directory);
  return model;
}

}  // namespace headroom::models
