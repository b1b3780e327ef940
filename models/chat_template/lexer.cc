#include "models/chat_template/lexer.h"

#include <algorithm>
#include <optional>

#include "models/chat_template/lexer_literals.h"
#include "models/chat_template/unicode.h"

namespace headroom::models::jinja {

namespace {

// \r\n and \r become \n; one newline at the very end goes.
std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else if (i + 1 == source.size() || source[i + 1] != '\n') {
      out += '\n';
    }
  }
  if (!out.empty() && out.back() == '\n') {
    out.pop_back();
  }
  return out;
}

bool IsAllSpace(std::string_view text) { return SkipSpaceForward(text, 0) == text.size(); }

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)), rest_(source_) {}

  StatusOr<std::vector<Token>> Run();

 private:
  // What stands in front of a tag: the text, and how the tag wants it cut.
  void EmitText(size_t begin, size_t end, char sign, bool is_output);
  Status LexTag(bool is_output, size_t open);
  // The end delimiter at the cursor, consumed; false when there is none.
  bool ConsumeTagEnd(bool is_output);
  Status LexTagToken(size_t open);
  Status LexOperator();
  Status SkipComment(size_t open);
  // {% raw %} at the cursor (just after "{%" and sign), consumed; false when it is another tag.
  bool ConsumeRawTag();
  Status LexRaw(size_t open);
  // "%}" with trimming at `at`: the offset after it, or nothing.
  std::optional<size_t> AfterBlockEnd(size_t at, std::string_view end, bool trim_newline) const;

  char ConsumeSign();
  bool StartsWith(size_t at, std::string_view what) const {
    return rest_.substr(std::min(at, rest_.size())).starts_with(what);
  }
  Position At(size_t offset) {
    // Offsets only grow, so the scan is linear over the whole file.
    for (; position_offset_ < offset; ++position_offset_) {
      if (rest_[position_offset_] == '\n') {
        ++line_;
        line_begin_ = position_offset_ + 1;
      }
    }
    if (offset >= line_begin_) {
      return {line_, static_cast<int32_t>(offset - line_begin_ + 1)};
    }
    const auto line = std::count(rest_.begin(), rest_.begin() + static_cast<int64_t>(offset), '\n');
    const size_t newline = offset == 0 ? std::string_view::npos : rest_.rfind('\n', offset - 1);
    const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
    return {static_cast<int32_t>(line + 1), static_cast<int32_t>(offset - begin + 1)};
  }
  void Emit(TokenKind kind, size_t offset, std::string text = {}) {
    tokens_.push_back({kind, At(offset), std::move(text)});
  }

  std::string source_;
  std::string_view rest_;  // all of source_
  size_t cursor_ = 0;
  bool line_starting_ = true;  // the last thing consumed ended with a newline
  std::string open_brackets_;
  std::vector<Token> tokens_;
  size_t position_offset_ = 0;
  int32_t line_ = 1;
  size_t line_begin_ = 0;
};

char Lexer::ConsumeSign() {
  if (cursor_ < rest_.size() && (rest_[cursor_] == '-' || rest_[cursor_] == '+')) {
    return rest_[cursor_++];
  }
  return '\0';
}

void Lexer::EmitText(size_t begin, size_t end, char sign, bool is_output) {
  std::string_view text = rest_.substr(begin, end - begin);
  if (sign == '-') {
    text = text.substr(0, SkipSpaceBackward(text, text.size()));
  } else if (sign != '+' && !is_output) {
    const size_t newline = text.rfind('\n');
    const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    if ((line > 0 || line_starting_) && IsAllSpace(text.substr(line))) {
      text = text.substr(0, line);
    }
  }
  if (!text.empty()) {
    Emit(TokenKind::kText, begin, std::string(text));
  }
}

std::optional<size_t> Lexer::AfterBlockEnd(size_t at, std::string_view end,
                                           bool trim_newline) const {
  if (at < rest_.size() && rest_[at] == '-' && StartsWith(at + 1, end)) {
    return SkipSpaceForward(rest_, at + 1 + end.size());
  }
  if (at < rest_.size() && rest_[at] == '+' && trim_newline && StartsWith(at + 1, end)) {
    return at + 1 + end.size();
  }
  if (StartsWith(at, end)) {
    const size_t after = at + end.size();
    return after + (trim_newline && StartsWith(after, "\n") ? 1 : 0);
  }
  return std::nullopt;
}

bool Lexer::ConsumeTagEnd(bool is_output) {
  const auto after = AfterBlockEnd(cursor_, is_output ? "}}" : "%}", !is_output);
  if (!after) {
    return false;
  }
  Emit(is_output ? TokenKind::kOutputEnd : TokenKind::kBlockEnd, cursor_);
  cursor_ = *after;
  line_starting_ = rest_[cursor_ - 1] == '\n';
  return true;
}

Status Lexer::SkipComment(size_t open) {
  for (size_t at = cursor_;; ++at) {
    at = rest_.find('#', at);
    if (at == std::string_view::npos) {
      return SyntaxError(At(open), "this comment has no end, wanted '#}'");
    }
    if (!StartsWith(at, "#}")) {
      continue;
    }
    // The sign stands before the '#'; it may not be the one that opened the comment.
    const bool strips = at > cursor_ && rest_[at - 1] == '-';
    const bool keeps = at > cursor_ && rest_[at - 1] == '+';
    cursor_ = at + 2;
    if (strips) {
      cursor_ = SkipSpaceForward(rest_, cursor_);
    } else if (!keeps && StartsWith(cursor_, "\n")) {
      ++cursor_;
    }
    line_starting_ = rest_[cursor_ - 1] == '\n';
    return OkStatus();
  }
}

bool Lexer::ConsumeRawTag() {
  size_t at = SkipSpaceForward(rest_, cursor_);
  if (!StartsWith(at, "raw")) {
    return false;
  }
  at = SkipSpaceForward(rest_, at + 3);
  const auto after = AfterBlockEnd(at, "%}", /*trim_newline=*/false);
  if (!after) {
    return false;
  }
  cursor_ = *after;
  line_starting_ = rest_[cursor_ - 1] == '\n';
  return true;
}

Status Lexer::LexRaw(size_t open) {
  const size_t begin = cursor_;
  for (size_t at = begin;; ++at) {
    at = rest_.find("{%", at);
    if (at == std::string_view::npos) {
      return SyntaxError(At(open), "'raw' has no end, wanted '{% endraw %}'");
    }
    cursor_ = at + 2;
    const char sign = ConsumeSign();
    const size_t name = SkipSpaceForward(rest_, cursor_);
    if (!StartsWith(name, "endraw")) {
      continue;
    }
    const auto after = AfterBlockEnd(SkipSpaceForward(rest_, name + 6), "%}", true);
    if (!after) {
      continue;
    }
    EmitText(begin, at, sign, /*is_output=*/false);
    cursor_ = *after;
    line_starting_ = rest_[cursor_ - 1] == '\n';
    return OkStatus();
  }
}

Status Lexer::LexOperator() {
  static constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
  static constexpr std::string_view kOne = "+-/*%~[](){}<>=.:|,;";
  const size_t at = cursor_;
  std::string spelling;
  for (const std::string_view two : kTwo) {
    if (StartsWith(at, two)) {
      spelling = two;
    }
  }
  if (spelling.empty()) {
    if (kOne.find(rest_[at]) == std::string_view::npos) {
      const CodePoint point = CodePointAt(rest_, at);
      return SyntaxError(At(at), fmt::format("unexpected character '{}' in an expression",
                                             rest_.substr(at, point.size)));
    }
    spelling = rest_[at];
  }
  const char c = spelling.size() == 1 ? spelling[0] : '\0';
  if (c == '(' || c == '[' || c == '{') {
    open_brackets_ += c == '(' ? ')' : c == '[' ? ']' : '}';
  } else if (c == ')' || c == ']' || c == '}') {
    if (open_brackets_.empty() || open_brackets_.back() != c) {
      return SyntaxError(
          At(at), fmt::format("unexpected '{}', wanted {}", c,
                              open_brackets_.empty() ? std::string("the end of the tag")
                                                     : fmt::format("'{}'", open_brackets_.back())));
    }
    open_brackets_.pop_back();
  }
  cursor_ += spelling.size();
  Emit(TokenKind::kOperator, at, std::move(spelling));
  return OkStatus();
}

Status Lexer::LexTagToken(size_t open) {
  const size_t at = cursor_;
  Literal literal;
  const Status status = ScanLiteral(rest_, at, literal);
  if (!status.ok()) {
    return SyntaxError(At(at), StatusMessage(status));
  }
  if (literal.size == 0) {
    return LexOperator();
  }
  Token token{literal.kind, At(at), std::move(literal.text), literal.integer, literal.number};
  tokens_.push_back(std::move(token));
  cursor_ += literal.size;
  return OkStatus();
}

Status Lexer::LexTag(bool is_output, size_t open) {
  Emit(is_output ? TokenKind::kOutputBegin : TokenKind::kBlockBegin, open);
  open_brackets_.clear();
  while (true) {
    // Jinja tries the end delimiter before it skips white space, which comes to the same.
    if (open_brackets_.empty() && ConsumeTagEnd(is_output)) {
      return OkStatus();
    }
    const size_t next = SkipSpaceForward(rest_, cursor_);
    if (next == rest_.size()) {
      return SyntaxError(At(open), is_output ? "this tag has no end, wanted '}}'"
                                             : "this tag has no end, wanted '%}'");
    }
    if (next != cursor_) {
      cursor_ = next;
      continue;
    }
    HEADROOM_RETURN_IF_ERROR(LexTagToken(open));
  }
}

StatusOr<std::vector<Token>> Lexer::Run() {
  while (cursor_ < rest_.size()) {
    const size_t begin = cursor_;
    size_t open = rest_.find('{', begin);
    while (open != std::string_view::npos && !StartsWith(open, "{%") && !StartsWith(open, "{{") &&
           !StartsWith(open, "{#")) {
      open = rest_.find('{', open + 1);
    }
    if (open == std::string_view::npos) {
      Emit(TokenKind::kText, begin, std::string(rest_.substr(begin)));
      break;
    }
    const char type = rest_[open + 1];
    cursor_ = open + 2;
    const char sign = ConsumeSign();
    EmitText(begin, open, sign, type == '{');
    if (type == '#') {
      HEADROOM_RETURN_IF_ERROR(SkipComment(open));
    } else if (type == '%' && ConsumeRawTag()) {
      HEADROOM_RETURN_IF_ERROR(LexRaw(open));
    } else {
      HEADROOM_RETURN_IF_ERROR(LexTag(type == '{', open));
    }
  }
  Emit(TokenKind::kEnd, rest_.size());
  return std::move(tokens_);
}

}  // namespace

StatusOr<std::vector<Token>> Tokenize(std::string_view source) {
  if (const size_t bad = FindInvalidUtf8(source); bad != std::string_view::npos) {
    return InvalidArgument("chat template: byte {} is not UTF-8", bad);
  }
  return Lexer(NormalizeNewlines(source)).Run();
}

Status SyntaxError(Position position, std::string_view what) {
  return InvalidArgument("chat template, line {}, column {}: {}", position.line, position.column,
                         what);
}

}  // namespace headroom::models::jinja
