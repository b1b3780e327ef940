// What all tokenizers share: a vocabulary, and the cut at special pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "models/tokenizer/special_matcher.h"
#include "models/tokenizer/tokenizer.h"
#include "models/tokenizer/vocabulary.h"

namespace headroom::models {

// Collects tokens with the text that each came from.
class EncodingSink {
 public:
  // Both must outlive the sink.
  EncodingSink(const std::vector<ByteRange>& message_ranges, Encoding* encoding)
      : cursor_(message_ranges), encoding_(encoding) {}

  // A token of text[begin, end), empty for one that the text did not ask for. Spans ascend.
  void Add(int32_t id, size_t begin, size_t end) {
    encoding_->ids.push_back(id);
    encoding_->from_message.push_back(cursor_.Overlaps(begin, end) ? 1 : 0);
  }

 private:
  MessageCursor cursor_;
  Encoding* encoding_;
};

class VocabularyTokenizer : public Tokenizer {
 public:
  explicit VocabularyTokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

  int32_t vocab_size() const override { return vocabulary_.size(); }
  int32_t bos_id() const override { return vocabulary_.data().bos_id; }
  int32_t eos_id() const override { return vocabulary_.data().eos_id; }
  bool add_bos() const override { return vocabulary_.data().add_bos; }

  using Tokenizer::Encode;
  Encoding Encode(const ProvenancedText& text) const override;

  std::string_view TokenBytes(int32_t id) const override { return vocabulary_.TokenBytes(id); }
  std::string_view TokenPiece(int32_t id) const override { return vocabulary_.TokenPiece(id); }
  TokenType Type(int32_t id) const override { return vocabulary_.Type(id); }
  int32_t FindSpecial(std::string_view piece) const override {
    return vocabulary_.FindSpecial(piece);
  }
  bool strips_leading_space() const override { return false; }

 protected:
  // Tokenises text[begin, end), which holds no special piece and is not empty. Tokens are reported
  // with their place in the whole text. A segment starts at the start of the text or right after
  // a special piece.
  virtual void EncodeSegment(std::string_view text, size_t begin, size_t end,
                             EncodingSink* sink) const = 0;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  Vocabulary vocabulary_;
};

}  // namespace headroom::models
