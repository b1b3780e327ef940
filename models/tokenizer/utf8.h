// UTF-8, one character at a time, in text that nothing vouches for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace headroom::models {

enum class Utf8Result : uint8_t {
  kCharacter,  // a well-formed character
  kIllFormed,  // bytes that are part of no character
  kTruncated,  // the text ends inside what may still become a character
};

struct Utf8Char {
  char32_t code_point = 0;  // U+FFFD unless kCharacter
  // Bytes that it takes, at least 1. When ill-formed: the maximal subpart (Unicode, section 3.9),
  // so that one U+FFFD for each gives what WHATWG decoders and Python's "replace" give.
  int num_bytes = 0;
  Utf8Result result = Utf8Result::kIllFormed;
};

// The character at text[position]; position < text.size().
Utf8Char DecodeUtf8(std::string_view text, size_t position);

// Appends a code point (< 0x110000, no surrogate).
void AppendUtf8(char32_t code_point, std::string* out);

}  // namespace headroom::models
