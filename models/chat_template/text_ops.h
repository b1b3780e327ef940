// Work on text that keeps provenance: shared by string methods and filters. Meanings are those of
// Python's str unless said otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/chat_template/budget.h"
#include "models/tokenizer/tokenizer.h"

namespace headroom::models::jinja {

// First occurrence at or after `from`, or npos. Linear time whatever the texts.
size_t FindBytes(std::string_view text, std::string_view needle, size_t from);

enum class CaseChange : uint8_t {
  kUpper,
  kLower,
  kCapitalize,   // first character upper, the rest lower
  kTitle,        // str.title: each run of letters capitalised
  kFilterTitle,  // Jinja's title filter: words part at white space and - ( { [ <
};
ProvenancedText ChangeCase(const ProvenancedText& text, CaseChange change);

// `chars` absent: white space.
ProvenancedText Strip(const ProvenancedText& text, std::optional<std::string_view> chars, bool left,
                      bool right);

// `separator` absent: runs of white space. At most `max_splits` cuts when >= 0, from the right when
// `from_right`. The separator is not empty.
StatusOr<ValueList> Split(Budget& budget, const ProvenancedText& text,
                          std::optional<std::string_view> separator, int64_t max_splits,
                          bool from_right);
StatusOr<ValueList> SplitLines(Budget& budget, const ProvenancedText& text, bool keep_ends);

// At most `max_count` replacements when >= 0.
StatusOr<ProvenancedText> Replace(Budget& budget, const ProvenancedText& text,
                                  const ProvenancedText& from, const ProvenancedText& to,
                                  int64_t max_count);

// & < > ' " as entities, each of the origin of its character.
ProvenancedText EscapeHtml(const ProvenancedText& text);

// Jinja's indent filter with `width` in front of every line but the first (unless `first`) and
// empty lines (unless `blank`).
StatusOr<ProvenancedText> Indent(Budget& budget, const ProvenancedText& text,
                                 const ProvenancedText& width, bool first, bool blank);

// The code points begin, begin + step, ... (`count` of them, all within the text).
ProvenancedText SliceCodePoints(const ProvenancedText& text, int64_t begin, int64_t count,
                                int64_t step);

}  // namespace headroom::models::jinja
