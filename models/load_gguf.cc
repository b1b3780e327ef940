#include "base/mapped_file.h"
#include "models/architectures/registry.h"
#include "models/file_error.h"
#include "models/gguf.h"
#include "models/gguf_tokenizer.h"
#include "models/model_files.h"

namespace headroom::models {
namespace {

Status CheckTokenizer(const std::string& path, const TokenizerData& data,
                      const ModelConfig& config) {
  // Embedding rows beyond the vocabulary are padding; tokens beyond the embedding are a fault.
  if (data.tokens.size() > static_cast<size_t>(config.vocab_size)) {
    return InvalidArgument(
        "{}: the vocabulary has {} tokens, wanted at most the {} rows of the "
        "embedding",
        path, data.tokens.size(), config.vocab_size);
  }
  return OkStatus();
}

Status LoadTokenizer(const GgufFile& file, LoadedModel& model) {
  HEADROOM_ASSIGN_OR_RETURN(std::optional<TokenizerData> data, ReadGgufTokenizer(file));
  if (!data.has_value()) {
    return OkStatus();
  }
  HEADROOM_RETURN_IF_ERROR(CheckTokenizer(file.path(), *data, model.config));
  HEADROOM_ASSIGN_OR_RETURN(model.eos_token_ids, ReadGgufEosIds(file, *data));
  StatusOr<std::unique_ptr<Tokenizer>> tokenizer = CreateTokenizer(std::move(*data));
  if (!tokenizer.ok()) {
    return MakeStatus(tokenizer.status().code(), fmt::format("{}: tokenizer: {}", file.path(),
                                                             StatusMessage(tokenizer.status())));
  }
  model.tokenizer = std::move(*tokenizer);
  HEADROOM_ASSIGN_OR_RETURN(model.chat_template, file.GetString("tokenizer.chat_template"));
  return OkStatus();
}

}  // namespace

StatusOr<LoadedModel> LoadGgufModel(const std::string& path) {
  HEADROOM_ASSIGN_OR_RETURN(std::shared_ptr<MappedFile> mapped, MappedFile::Open(path));
  HEADROOM_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Parse(mapped->bytes(), path));
  HEADROOM_ASSIGN_OR_RETURN(const std::optional<std::string> name,
                            file.GetString("general.architecture"));
  const Architecture* architecture = FindGgufArchitecture(name.value_or(""));
  if (architecture == nullptr) {
    return Unimplemented("{}: general.architecture \"{}\", wanted one of: {}", path,
                         Printable(name.value_or("")), KnownArchitectures(TensorNaming::kGguf));
  }
  LoadedModel model;
  HEADROOM_ASSIGN_OR_RETURN(model.config, architecture->config_from_gguf(file));
  HEADROOM_RETURN_IF_ERROR(LoadTokenizer(file, model));
  HEADROOM_RETURN_IF_ERROR(FinishModel(file.tensors(), TensorNaming::kGguf, path, model));
  model.weights.storage.push_back(std::move(mapped));
  return model;
}

}  // namespace headroom::models
