// What the hand-written pre-tokenizer scanners share: one character with its class, and runs.
#pragma once

#include <cstddef>
#include <string_view>

#include "models/tokenizer/unicode.h"
#include "models/tokenizer/utf8.h"

namespace headroom::models {

struct ScannedChar {
  char32_t code_point = 0;
  CharClass char_class = CharClass::kOther;
  int num_bytes = 0;
};

// The classes that GPT-2's pattern and its relatives tell apart.
enum class WordGroup { kLetter, kNumber, kSpace, kRest };

// The character at `position` < text.size(). Ill-formed bytes are U+FFFD, a symbol.
inline ScannedChar CharAt(std::string_view text, size_t position) {
  const Utf8Char c = DecodeUtf8(text, position);
  return {c.code_point, ClassOf(c.code_point), c.num_bytes};
}

inline WordGroup GroupOf(const ScannedChar& c) {
  switch (c.char_class) {
    case CharClass::kLetter:
      return WordGroup::kLetter;
    case CharClass::kNumber:
      return WordGroup::kNumber;
    case CharClass::kSpace:
      return WordGroup::kSpace;
    default:
      return WordGroup::kRest;
  }
}

inline bool IsLineBreak(const ScannedChar& c) {
  return c.code_point == '\n' || c.code_point == '\r';
}

// The end of the run of `group` that starts at `position`; `position` itself when there is none.
inline size_t EndOfRun(std::string_view text, size_t position, WordGroup group) {
  while (position < text.size()) {
    const ScannedChar c = CharAt(text, position);
    if (GroupOf(c) != group) {
      break;
    }
    position += c.num_bytes;
  }
  return position;
}

}  // namespace headroom::models
