#include "models/tokenizer/tokenizer.h"

#include <utility>

#include "models/tokenizer/byte_level_bpe.h"
#include "models/tokenizer/sentencepiece_bpe.h"

namespace headroom::models {

std::vector<int32_t> Tokenizer::Encode(std::string_view text, bool with_bos,
                                       bool parse_special) const {
  ProvenancedText provenanced;
  provenanced.text = text;
  if (!parse_special && !text.empty()) {
    provenanced.message_ranges.push_back({0, static_cast<int64_t>(text.size())});
  }
  std::vector<int32_t> ids = Encode(provenanced).ids;
  if (with_bos && bos_id() >= 0) {
    ids.insert(ids.begin(), bos_id());
  }
  return ids;
}

StatusOr<std::unique_ptr<Tokenizer>> CreateTokenizer(TokenizerData data) {
  if (data.model == "gpt2") {
    return ByteLevelBpe::Create(std::move(data));
  }
  if (data.model == "llama") {
    return SentencePieceBpe::Create(std::move(data));
  }
  return InvalidArgument("tokenizer: unknown model '{}', wanted 'gpt2' or 'llama'", data.model);
}

}  // namespace headroom::models
