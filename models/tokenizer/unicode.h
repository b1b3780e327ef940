// The character classes that pre-tokenizer patterns name: \p{L}, \p{N}, \p{M}, \p{P}, \p{S}, \s.
#pragma once

#include <cstdint>

namespace headroom::models {

// Values are those of scripts/make_unicode_tables.py. kSpace is the White_Space property; it wins
// over the general category. kOther is the rest, unassigned code points among it.
enum class CharClass : uint8_t {
  kOther,
  kLetter,
  kNumber,
  kMark,
  kPunctuation,
  kSymbol,
  kSpace,
};

// The class of a code point; kOther at and above 0x110000.
CharClass ClassOf(char32_t code_point);

}  // namespace headroom::models
