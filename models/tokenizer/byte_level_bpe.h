// Byte-level BPE: GPT-2's tokenizer and all that follow it.
//
// Text is cut into words (pre_tokenizer.h); in each word, bytes are merged by rank, lowest first
// and leftmost among equals, until no pair of neighbours has a merge.
#pragma once

#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "models/tokenizer/merge_table.h"
#include "models/tokenizer/pre_tokenizer.h"
#include "models/tokenizer/vocabulary_tokenizer.h"

namespace headroom::models {

class ByteLevelBpe : public VocabularyTokenizer {
 public:
  // Errors as CreateTokenizer.
  static StatusOr<std::unique_ptr<Tokenizer>> Create(TokenizerData data);

 protected:
  void EncodeSegment(std::string_view text, size_t begin, size_t end,
                     EncodingSink* sink) const override;

 private:
  // A token of a word under way: bytes [begin, end) of the word. id -1: a byte without a token.
  struct Part {
    int32_t id = -1;
    size_t begin = 0;
    size_t end = 0;
  };

  ByteLevelBpe(Vocabulary vocabulary, MergeTable merges, PreTokenizer pre_tokenizer);

  // Replaces `parts` by the tokens of the word.
  void EncodeWord(std::string_view word, std::vector<Part>* parts) const;
  // Merge in place: by scanning, which is quickest for a few bytes, and in n log n for the rest.
  void MergeShort(std::vector<Part>* parts) const;
  void MergeLong(std::vector<Part>* parts) const;

  MergeTable merges_;
  PreTokenizer pre_tokenizer_;
  // Only with ignore_merges: the bytes of each normal piece; views into the vocabulary.
  std::unordered_map<std::string_view, int32_t> whole_words_;
  // What a byte without a token becomes: U+FFFD, or the unknown token, or nothing.
  std::vector<int32_t> missing_byte_ids_;
};

}  // namespace headroom::models
