#include "models/chat_template/unicode.h"

namespace headroom::models::jinja {

namespace {

constexpr uint32_t kReplacement = 0xFFFD;

bool IsContinuation(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

// Blocks where upper and lower case alternate, upper on even (or odd) code points.
bool AlternatesFromEven(uint32_t c) {
  return (c >= 0x100 && c <= 0x12F) || (c >= 0x132 && c <= 0x137) || (c >= 0x14A && c <= 0x177) ||
         (c >= 0x370 && c <= 0x373) || (c >= 0x460 && c <= 0x481) || (c >= 0x48A && c <= 0x4BF) ||
         (c >= 0x4D0 && c <= 0x52F) || (c >= 0x1E00 && c <= 0x1E95) || (c >= 0x1EA0 && c <= 0x1EFF);
}
bool AlternatesFromOdd(uint32_t c) {
  return (c >= 0x139 && c <= 0x148) || (c >= 0x179 && c <= 0x17E) || (c >= 0x4C1 && c <= 0x4CE);
}

}  // namespace

CodePoint CodePointAt(std::string_view text, size_t offset) {
  const auto lead = static_cast<uint8_t>(text[offset]);
  if (lead < 0x80) {
    return {lead, 1};
  }
  const size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || size > text.size() - offset) {
    return {kReplacement, 1};
  }
  uint32_t value = lead & (0x7Fu >> size);
  for (size_t i = 1; i < size; ++i) {
    if (!IsContinuation(text[offset + i])) {
      return {kReplacement, 1};
    }
    value = value << 6 | (static_cast<uint8_t>(text[offset + i]) & 0x3Fu);
  }
  const bool overlong = (size == 3 && value < 0x800) || (size == 4 && value < 0x10000);
  if (overlong || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
    return {kReplacement, 1};
  }
  return {value, size};
}

size_t FindInvalidUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const CodePoint point = CodePointAt(text, i);
    if (point.value == kReplacement && point.size == 1) {
      return i;
    }
    i += point.size;
  }
  return std::string_view::npos;
}

int64_t CountCodePoints(std::string_view text) {
  int64_t count = 0;
  for (size_t i = 0; i < text.size(); i += CodePointAt(text, i).size) {
    ++count;
  }
  return count;
}

void AppendUtf8(std::string& out, uint32_t c) {
  if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) {
    c = kReplacement;
  }
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

bool IsSpace(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool IsPrintable(uint32_t c) {
  if (c == ' ') {
    return true;
  }
  const bool control = c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0xAD;
  const bool format = (c >= 0x200B && c <= 0x200F) || (c >= 0x202A && c <= 0x202E) ||
                      (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF || (c >= 0xFFF0 && c <= 0xFFFB) ||
                      (c >= 0xE0000 && c <= 0xE0FFF);
  const bool unassigned = (c >= 0xD800 && c <= 0xF8FF) || (c & 0xFFFE) == 0xFFFE || c >= 0xF0000;
  return !control && !format && !unassigned && !IsSpace(c);
}

uint32_t ToUpper(uint32_t c) {
  if (c < 0x80) {
    return c >= 'a' && c <= 'z' ? c - 32 : c;
  }
  if ((c >= 0xE0 && c <= 0xFE && c != 0xF7) || (c >= 0x3B1 && c <= 0x3C9 && c != 0x3C2) ||
      (c >= 0x430 && c <= 0x44F)) {
    return c - 32;
  }
  if (c == 0xFF)
    return 0x178;
  if (c == 0xB5)
    return 0x39C;
  if (c == 0x131)
    return 'I';
  if (c == 0x17F)
    return 'S';
  if (c == 0x3C2)
    return 0x3A3;
  if (c == 0x3AC)
    return 0x386;
  if (c >= 0x3AD && c <= 0x3AF)
    return c - 37;
  if (c == 0x3CC)
    return 0x38C;
  if (c == 0x3CD || c == 0x3CE)
    return c - 63;
  if (c == 0x4CF)
    return 0x4C0;
  if (c >= 0x450 && c <= 0x45F)
    return c - 80;
  if (c >= 0x561 && c <= 0x586)
    return c - 48;
  if (AlternatesFromEven(c) && c % 2 == 1)
    return c - 1;
  if (AlternatesFromOdd(c) && c % 2 == 0)
    return c - 1;
  return c;
}

uint32_t ToLower(uint32_t c) {
  if (c < 0x80) {
    return c >= 'A' && c <= 'Z' ? c + 32 : c;
  }
  if ((c >= 0xC0 && c <= 0xDE && c != 0xD7) || (c >= 0x391 && c <= 0x3A9 && c != 0x3A2) ||
      (c >= 0x410 && c <= 0x42F)) {
    return c + 32;
  }
  if (c == 0x178)
    return 0xFF;
  if (c == 0x386)
    return 0x3AC;
  if (c >= 0x388 && c <= 0x38A)
    return c + 37;
  if (c == 0x38C)
    return 0x3CC;
  if (c == 0x38E || c == 0x38F)
    return c + 63;
  if (c == 0x4C0)
    return 0x4CF;
  if (c == 0x1E9E)
    return 0xDF;
  if (c >= 0x400 && c <= 0x40F)
    return c + 80;
  if (c >= 0x531 && c <= 0x556)
    return c + 48;
  if (AlternatesFromEven(c) && c % 2 == 0)
    return c + 1;
  if (AlternatesFromOdd(c) && c % 2 == 1)
    return c + 1;
  return c;
}

bool IsCased(uint32_t c) { return ToUpper(c) != c || ToLower(c) != c || c == 0xDF; }

size_t SkipSpaceForward(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    const CodePoint point = CodePointAt(text, begin);
    if (!IsSpace(point.value)) {
      break;
    }
    begin += point.size;
  }
  return begin;
}

size_t SkipSpaceBackward(std::string_view text, size_t end) {
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 && end - begin < 4 && IsContinuation(text[begin])) {
      --begin;
    }
    const CodePoint point = CodePointAt(text, begin);
    if (begin + point.size != end || !IsSpace(point.value)) {
      break;
    }
    end = begin;
  }
  return end;
}

}  // namespace headroom::models::jinja
