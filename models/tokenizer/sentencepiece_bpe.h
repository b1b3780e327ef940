// SentencePiece-style BPE (GGUF model "llama"): no words and no merges list; the pair of
// neighbours whose joined piece has the best score is merged first, leftmost among equals, over
// the whole text between special pieces. Spaces are U+2581; characters without a piece are spelt
// in byte pieces. Where no piece of the vocabulary can reach across the start of a word, words
// are merged one by one, with the same result.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "models/tokenizer/vocabulary_tokenizer.h"

namespace headroom::models {

class SentencePieceBpe : public VocabularyTokenizer {
 public:
  // Errors as CreateTokenizer.
  static StatusOr<std::unique_ptr<Tokenizer>> Create(TokenizerData data);

  bool strips_leading_space() const override { return vocabulary().data().add_space_prefix; }

 protected:
  void EncodeSegment(std::string_view text, size_t begin, size_t end,
                     EncodingSink* sink) const override;

 private:
  explicit SentencePieceBpe(Vocabulary vocabulary);

  // No normal piece holds a U+2581 right after another character.
  bool merges_stay_in_words_ = false;
};

}  // namespace headroom::models
