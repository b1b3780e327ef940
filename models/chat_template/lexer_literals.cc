#include "models/chat_template/lexer_literals.h"

#include <charconv>

#include "models/chat_template/unicode.h"

namespace headroom::models::jinja {

namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

// Digits with single underscores between them, from `at`; the offset after them.
size_t SkipDigits(std::string_view source, size_t at) {
  while (at < source.size() &&
         (IsDigit(source[at]) || (source[at] == '_' && at + 1 < source.size() &&
                                  IsDigit(source[at + 1]) && at > 0 && IsDigit(source[at - 1])))) {
    ++at;
  }
  return at;
}

std::string WithoutUnderscores(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c != '_') {
      out += c;
    }
  }
  return out;
}

Status ParseInteger(std::string_view digits, int base, Literal& literal) {
  const std::string text = WithoutUnderscores(digits);
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), literal.integer, base);
  if (error != std::errc() || end != text.data() + text.size()) {
    return InvalidArgument("the integer '{}' does not fit in 64 bits", text.substr(0, 40));
  }
  literal.kind = TokenKind::kInteger;
  return OkStatus();
}

// 0x, 0o and 0b; size stays 0 when none starts here.
Status ScanPrefixedInteger(std::string_view source, size_t at, Literal& literal) {
  if (at + 2 >= source.size() || source[at] != '0') {
    return OkStatus();
  }
  const char mark = static_cast<char>(source[at + 1] | 0x20);
  const int base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
  if (base == 0) {
    return OkStatus();
  }
  size_t end = at + 2;
  while (end < source.size()) {
    const char c = static_cast<char>(source[end] | 0x20);
    const int digit = IsDigit(source[end])   ? source[end] - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : 99;
    if (source[end] != '_' && digit >= base) {
      break;
    }
    ++end;
  }
  if (end == at + 2) {
    return OkStatus();
  }
  literal.size = end - at;
  return ParseInteger(source.substr(at + 2, end - at - 2), base, literal);
}

Status ScanNumber(std::string_view source, size_t at, Literal& literal) {
  HEADROOM_RETURN_IF_ERROR(ScanPrefixedInteger(source, at, literal));
  if (literal.size > 0) {
    return OkStatus();
  }
  const size_t whole = SkipDigits(source, at);
  size_t end = whole;
  // No float straight after a dot: `items.0.1` is two subscripts.
  const bool may_be_float = at == 0 || source[at - 1] != '.';
  if (may_be_float) {
    if (end + 1 < source.size() && source[end] == '.' && IsDigit(source[end + 1])) {
      end = SkipDigits(source, end + 1);
    }
    if (end < source.size() && (source[end] | 0x20) == 'e') {
      size_t exponent = end + 1;
      if (exponent < source.size() && (source[exponent] == '+' || source[exponent] == '-')) {
        ++exponent;
      }
      if (exponent < source.size() && IsDigit(source[exponent])) {
        end = SkipDigits(source, exponent);
      }
    }
  }
  literal.size = end - at;
  if (end == whole) {
    return ParseInteger(source.substr(at, whole - at), 10, literal);
  }
  const std::string text = WithoutUnderscores(source.substr(at, end - at));
  const auto [last, error] =
      std::from_chars(text.data(), text.data() + text.size(), literal.number);
  if (error != std::errc() || last != text.data() + text.size()) {
    return InvalidArgument("the number '{}' is out of range", text.substr(0, 40));
  }
  literal.kind = TokenKind::kFloat;
  return OkStatus();
}

// \x, \u and \U: `count` hexadecimal digits at `at`.
Status UnescapeHex(std::string_view body, size_t at, size_t count, std::string& out) {
  uint32_t value = 0;
  if (count > body.size() - at) {
    return InvalidArgument("an escape in a string is cut short, wanted {} hexadecimal digits",
                           count);
  }
  const auto [end, error] = std::from_chars(body.data() + at, body.data() + at + count, value, 16);
  if (error != std::errc() || end != body.data() + at + count || value > 0x10FFFF) {
    return InvalidArgument("a broken escape in a string, wanted {} hexadecimal digits", count);
  }
  AppendUtf8(out, value);
  return OkStatus();
}

// One escape at body[at] == '\\'; moves `at` past it. Unknown escapes stay as they are.
Status Unescape(std::string_view body, size_t& at, std::string& out) {
  static constexpr std::string_view kFrom = "abfnrtv\\'\"";
  static constexpr std::string_view kTo = "\a\b\f\n\r\t\v\\'\"";
  const char c = body[at + 1];
  at += 2;
  if (const size_t simple = kFrom.find(c); simple != std::string_view::npos) {
    out += kTo[simple];
    return OkStatus();
  }
  if (c == '\n') {
    return OkStatus();
  }
  if (c == 'x' || c == 'u' || c == 'U') {
    const size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
    HEADROOM_RETURN_IF_ERROR(UnescapeHex(body, at, count, out));
    at += count;
    return OkStatus();
  }
  if (c >= '0' && c <= '7') {
    uint32_t value = static_cast<uint32_t>(c - '0');
    for (int i = 0; i < 2 && at < body.size() && body[at] >= '0' && body[at] <= '7'; ++i) {
      value = value * 8 + static_cast<uint32_t>(body[at++] - '0');
    }
    AppendUtf8(out, value);
    return OkStatus();
  }
  if (c == 'N') {
    return InvalidArgument("named characters (\\N) in strings are not supported");
  }
  out += '\\';
  out += c;
  return OkStatus();
}

Status ScanString(std::string_view source, size_t at, Literal& literal) {
  const char quote = source[at];
  size_t end = at + 1;
  while (end < source.size() && source[end] != quote) {
    end += source[end] == '\\' ? 2 : 1;
  }
  if (end >= source.size()) {
    return InvalidArgument("this string has no end, wanted {}", quote);
  }
  const std::string_view body = source.substr(at + 1, end - at - 1);
  for (size_t i = 0; i < body.size();) {
    if (body[i] == '\\') {
      HEADROOM_RETURN_IF_ERROR(Unescape(body, i, literal.text));
    } else {
      literal.text += body[i++];
    }
  }
  literal.kind = TokenKind::kString;
  literal.size = end + 1 - at;
  return OkStatus();
}

}  // namespace

Status ScanLiteral(std::string_view source, size_t at, Literal& literal) {
  const char c = source[at];
  if (IsDigit(c)) {
    return ScanNumber(source, at, literal);
  }
  if (c == '\'' || c == '"') {
    return ScanString(source, at, literal);
  }
  if (IsNameStart(c)) {
    size_t end = at;
    while (end < source.size() && (IsNameStart(source[end]) || IsDigit(source[end]))) {
      ++end;
    }
    literal.kind = TokenKind::kName;
    literal.text = source.substr(at, end - at);
    literal.size = end - at;
  }
  return OkStatus();
}

}  // namespace headroom::models::jinja
