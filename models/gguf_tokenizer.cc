#include "models/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

#include "models/file_error.h"

namespace headroom::models {
namespace {

// Pieces with which published chat models end a turn or a document.
constexpr std::array<std::string_view, 9> kEndPieces = {
    "<|im_end|>",      "<|eot_id|>",    "<|eom_id|>",      "<end_of_turn>", "<|end|>",
    "<|end_of_turn|>", "<|endoftext|>", "<|end_of_text|>", "</s>"};

Status LengthError(const GgufFile& file, const char* key, size_t got, size_t wanted) {
  const GgufEntry* entry = file.Find(key);
  return FileError(file.path(), entry == nullptr ? 0 : entry->file_offset,
                   "metadata \"{}\" has {} elements, wanted {} (one for each token)", key, got,
                   wanted);
}

// Reads an id: -1 when absent.
StatusOr<int32_t> ReadId(const GgufFile& file, const char* key, size_t vocab_size) {
  HEADROOM_ASSIGN_OR_RETURN(const std::optional<int64_t> id, file.GetInt(key));
  if (!id.has_value()) {
    return -1;
  }
  // Some writers spell "none" as -1, in 32 bits.
  if (*id == -1 || *id == int64_t{UINT32_MAX}) {
    return -1;
  }
  if (*id < 0 || static_cast<uint64_t>(*id) >= vocab_size) {
    return FileError(file.path(), file.Find(key)->file_offset,
                     "metadata \"{}\" is {}, wanted an id below the vocabulary's {}", key, *id,
                     vocab_size);
  }
  return static_cast<int32_t>(*id);
}

Status ReadTokenTypes(const GgufFile& file, TokenizerData& data) {
  constexpr const char* kKey = "tokenizer.ggml.token_type";
  HEADROOM_ASSIGN_OR_RETURN(const std::optional<std::vector<int64_t>> types, file.GetInts(kKey));
  if (!types.has_value()) {
    return OkStatus();
  }
  if (types->size() != data.tokens.size()) {
    return LengthError(file, kKey, types->size(), data.tokens.size());
  }
  data.token_types.reserve(types->size());
  for (size_t i = 0; i < types->size(); ++i) {
    // The file counts from 1 (normal) to 6 (byte), in TokenType's order.
    const int64_t type = (*types)[i];
    if (type < 1 || type > 6) {
      return FileError(file.path(), file.Find(kKey)->file_offset,
                       "token {} has type {}, wanted 1..6", i, type);
    }
    data.token_types.push_back(static_cast<TokenType>(type - 1));
  }
  return OkStatus();
}

Status ReadScoresAndMerges(const GgufFile& file, TokenizerData& data) {
  constexpr const char* kScores = "tokenizer.ggml.scores";
  HEADROOM_ASSIGN_OR_RETURN(std::optional<std::vector<float>> scores, file.GetFloats(kScores));
  if (scores.has_value()) {
    if (scores->size() != data.tokens.size()) {
      return LengthError(file, kScores, scores->size(), data.tokens.size());
    }
    data.scores = std::move(*scores);
  }
  HEADROOM_ASSIGN_OR_RETURN(std::optional<std::vector<std::string>> merges,
                            file.GetStrings("tokenizer.ggml.merges"));
  if (merges.has_value()) {
    data.merges = std::move(*merges);
  }
  return OkStatus();
}

Status ReadFlagsAndIds(const GgufFile& file, TokenizerData& data) {
  const size_t vocab_size = data.tokens.size();
  HEADROOM_ASSIGN_OR_RETURN(data.bos_id, ReadId(file, "tokenizer.ggml.bos_token_id", vocab_size));
  HEADROOM_ASSIGN_OR_RETURN(data.eos_id, ReadId(file, "tokenizer.ggml.eos_token_id", vocab_size));
  HEADROOM_ASSIGN_OR_RETURN(data.unk_id,
                            ReadId(file, "tokenizer.ggml.unknown_token_id", vocab_size));
  HEADROOM_ASSIGN_OR_RETURN(const std::optional<bool> add_bos,
                            file.GetBool("tokenizer.ggml.add_bos_token"));
  HEADROOM_ASSIGN_OR_RETURN(const std::optional<bool> add_eos,
                            file.GetBool("tokenizer.ggml.add_eos_token"));
  HEADROOM_ASSIGN_OR_RETURN(const std::optional<bool> space_prefix,
                            file.GetBool("tokenizer.ggml.add_space_prefix"));
  // SentencePiece models want a BOS unless they say otherwise; byte-level ones do not.
  data.add_bos = add_bos.value_or(data.model == "llama") && data.bos_id >= 0;
  data.add_eos = add_eos.value_or(false);
  data.add_space_prefix = space_prefix.value_or(true);
  return OkStatus();
}

}  // namespace

StatusOr<std::optional<TokenizerData>> ReadGgufTokenizer(const GgufFile& file) {
  TokenizerData data;
  HEADROOM_ASSIGN_OR_RETURN(std::optional<std::string> model,
                            file.GetString("tokenizer.ggml.model"));
  HEADROOM_ASSIGN_OR_RETURN(std::optional<std::vector<std::string>> tokens,
                            file.GetStrings("tokenizer.ggml.tokens"));
  if (!tokens.has_value()) {
    return std::optional<TokenizerData>();
  }
  if (!model.has_value()) {
    return InvalidArgument("{}: a vocabulary without \"tokenizer.ggml.model\"", file.path());
  }
  if (tokens->size() > static_cast<size_t>(INT32_MAX)) {
    return InvalidArgument("{}: {} tokens in the vocabulary, wanted at most {}", file.path(),
                           tokens->size(), INT32_MAX);
  }
  HEADROOM_ASSIGN_OR_RETURN(std::optional<std::string> pre, file.GetString("tokenizer.ggml.pre"));
  data.model = std::move(*model);
  data.pre = pre.value_or("default");
  data.tokens = std::move(*tokens);
  HEADROOM_RETURN_IF_ERROR(ReadScoresAndMerges(file, data));
  HEADROOM_RETURN_IF_ERROR(ReadTokenTypes(file, data));
  HEADROOM_RETURN_IF_ERROR(ReadFlagsAndIds(file, data));
  return std::optional<TokenizerData>(std::move(data));
}

StatusOr<std::vector<int32_t>> ReadGgufEosIds(const GgufFile& file, const TokenizerData& data) {
  std::set<int32_t> ids;
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    HEADROOM_ASSIGN_OR_RETURN(const int32_t id, ReadId(file, key, data.tokens.size()));
    if (id >= 0) {
      ids.insert(id);
    }
  }
  for (size_t i = 0; i < data.token_types.size(); ++i) {
    if (data.token_types[i] == TokenType::kControl &&
        std::find(kEndPieces.begin(), kEndPieces.end(), data.tokens[i]) != kEndPieces.end()) {
      ids.insert(static_cast<int32_t>(i));
    }
  }
  return std::vector<int32_t>(ids.begin(), ids.end());
}

}  // namespace headroom::models
