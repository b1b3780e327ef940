// The tokenizer of builtin:tiny: a token for each byte, then control tokens.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "models/tokenizer/tokenizer.h"
#include "models/tokenizer/vocabulary_tokenizer.h"

namespace headroom::models {
namespace {

class ByteTokenizer : public VocabularyTokenizer {
 public:
  explicit ByteTokenizer(Vocabulary vocabulary) : VocabularyTokenizer(std::move(vocabulary)) {}

 protected:
  void EncodeSegment(std::string_view text, size_t begin, size_t end,
                     EncodingSink* sink) const override {
    for (size_t i = begin; i < end; ++i) {
      sink->Add(static_cast<uint8_t>(text[i]), i, i + 1);
    }
  }
};

}  // namespace

std::unique_ptr<Tokenizer> CreateByteTokenizer(std::vector<std::string> special_pieces,
                                               int32_t bos_index, int32_t eos_index) {
  const auto num_special = static_cast<int32_t>(special_pieces.size());
  HEADROOM_CHECK(bos_index >= -1 && bos_index < num_special);
  HEADROOM_CHECK(eos_index >= -1 && eos_index < num_special);
  TokenizerData data;
  for (int byte = 0; byte < 256; ++byte) {
    data.tokens.push_back(fmt::format("<0x{:02X}>", byte));
    data.token_types.push_back(TokenType::kByte);
  }
  for (std::string& piece : special_pieces) {
    data.tokens.push_back(std::move(piece));
    data.token_types.push_back(TokenType::kControl);
  }
  data.bos_id = bos_index < 0 ? -1 : 256 + bos_index;
  data.eos_id = eos_index < 0 ? -1 : 256 + eos_index;
  StatusOr<Vocabulary> vocabulary =
      Vocabulary::Create(std::move(data), PieceSpelling::kSentencePiece);
  HEADROOM_CHECK(vocabulary.ok());
  return std::make_unique<ByteTokenizer>(std::move(vocabulary).value());
}

}  // namespace headroom::models
