// Source text of a template -> tokens, with Jinja's white-space control.
//
// Follows pallets/jinja:src/jinja2/lexer.py with trim_blocks and lstrip_blocks on, as the Hugging
// Face tokenizers set them: newlines become \n, one newline at the end of the file is dropped, the
// newline after a block or comment is dropped, white space between the start of a line and a block
// or comment is dropped, and `-` and `+` beside a delimiter override that.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace headroom::models::jinja {

struct Position {
  int32_t line = 0;    // 1-based
  int32_t column = 0;  // 1-based, in bytes
};

enum class TokenKind : uint8_t {
  kText,         // output as it is; `text`
  kOutputBegin,  // {{
  kOutputEnd,    // }}
  kBlockBegin,   // {%
  kBlockEnd,     // %}
  kName,         // `text`
  kString,       // `text`, unescaped
  kInteger,      // `integer`
  kFloat,        // `number`
  kOperator,     // `text`
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  Position position;
  std::string text;
  int64_t integer = 0;
  double number = 0.0;

  bool Is(TokenKind wanted, std::string_view spelling) const {
    return kind == wanted && text == spelling;
  }
};

// The last token is kEnd. InvalidArgument names line and column.
StatusOr<std::vector<Token>> Tokenize(std::string_view source);

// The same error for lexer and parser: "chat template, line L, column C: what".
Status SyntaxError(Position position, std::string_view what);

}  // namespace headroom::models::jinja
