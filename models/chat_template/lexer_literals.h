// Names, numbers and strings inside a tag.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "models/chat_template/lexer.h"

namespace headroom::models::jinja {

struct Literal {
  TokenKind kind = TokenKind::kEnd;
  size_t size = 0;  // bytes of source; 0: no name, number or string starts here
  std::string text;
  int64_t integer = 0;
  double number = 0.0;
};

// Reads one literal at `at` < source.size(). Errors (without position): a string without end, a
// broken escape, an integer beyond 64 bits.
Status ScanLiteral(std::string_view source, size_t at, Literal& literal);

}  // namespace headroom::models::jinja
