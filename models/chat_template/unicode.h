// Code points in UTF-8 text, as Python's str sees them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace headroom::models::jinja {

struct CodePoint {
  uint32_t value = 0;
  size_t size = 1;  // bytes
};

// The code point at `offset` < text.size(). A byte that starts no well-formed sequence counts as
// one code point U+FFFD of one byte.
CodePoint CodePointAt(std::string_view text, size_t offset);

// First byte that is not part of well-formed UTF-8, or npos.
size_t FindInvalidUtf8(std::string_view text);

int64_t CountCodePoints(std::string_view text);

void AppendUtf8(std::string& out, uint32_t code_point);

bool IsSpace(uint32_t code_point);      // str.isspace and the regex class \s
bool IsPrintable(uint32_t code_point);  // what repr() shows as it is (close to Python's tables)

// Simple case mapping of the Latin, Greek, Cyrillic and Armenian blocks; other code points map to
// themselves (Python knows more, and mappings to several characters).
uint32_t ToUpper(uint32_t code_point);
uint32_t ToLower(uint32_t code_point);
bool IsCased(uint32_t code_point);

// Offsets past the white space that starts at `begin`, or before the white space that ends at
// `end`.
size_t SkipSpaceForward(std::string_view text, size_t begin);
size_t SkipSpaceBackward(std::string_view text, size_t end);

}  // namespace headroom::models::jinja
