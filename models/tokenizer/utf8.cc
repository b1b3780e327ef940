#include "models/tokenizer/utf8.h"

#include "base/check.h"

namespace headroom::models {
namespace {

// What may follow a lead byte: the number of continuation bytes and the range of the first of
// them. The range is what shuts out overlong forms, surrogates and values past U+10FFFF.
struct LeadByte {
  int num_continuations = 0;  // 0: not a lead byte
  uint8_t second_min = 0x80;
  uint8_t second_max = 0xBF;
};

LeadByte ClassifyLead(uint8_t lead) {
  if (lead >= 0xC2 && lead <= 0xDF) {
    return {1, 0x80, 0xBF};
  }
  if (lead >= 0xE0 && lead <= 0xEF) {
    return {2, static_cast<uint8_t>(lead == 0xE0 ? 0xA0 : 0x80),
            static_cast<uint8_t>(lead == 0xED ? 0x9F : 0xBF)};
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    return {3, static_cast<uint8_t>(lead == 0xF0 ? 0x90 : 0x80),
            static_cast<uint8_t>(lead == 0xF4 ? 0x8F : 0xBF)};
  }
  return {};
}

}  // namespace

Utf8Char DecodeUtf8(std::string_view text, size_t position) {
  HEADROOM_DCHECK(position < text.size());
  const auto lead = static_cast<uint8_t>(text[position]);
  if (lead < 0x80) {
    return {lead, 1, Utf8Result::kCharacter};
  }
  const LeadByte kind = ClassifyLead(lead);
  if (kind.num_continuations == 0) {
    return {0xFFFD, 1, Utf8Result::kIllFormed};
  }
  char32_t code_point = lead & (0x3F >> kind.num_continuations);
  for (int i = 1; i <= kind.num_continuations; ++i) {
    if (position + i >= text.size()) {
      return {0xFFFD, i, Utf8Result::kTruncated};
    }
    const auto byte = static_cast<uint8_t>(text[position + i]);
    const uint8_t min = i == 1 ? kind.second_min : 0x80;
    const uint8_t max = i == 1 ? kind.second_max : 0xBF;
    if (byte < min || byte > max) {
      return {0xFFFD, i, Utf8Result::kIllFormed};
    }
    code_point = (code_point << 6) | (byte & 0x3F);
  }
  return {code_point, kind.num_continuations + 1, Utf8Result::kCharacter};
}

void AppendUtf8(char32_t code_point, std::string* out) {
  HEADROOM_DCHECK(code_point < 0x110000);
  if (code_point < 0x80) {
    out->push_back(static_cast<char>(code_point));
    return;
  }
  const int num_continuations = code_point < 0x800 ? 1 : code_point < 0x10000 ? 2 : 3;
  static constexpr uint8_t kLeadMarks[] = {0, 0xC0, 0xE0, 0xF0};
  out->push_back(
      static_cast<char>(kLeadMarks[num_continuations] | (code_point >> (6 * num_continuations))));
  for (int i = num_continuations - 1; i >= 0; --i) {
    out->push_back(static_cast<char>(0x80 | ((code_point >> (6 * i)) & 0x3F)));
  }
}

}  // namespace headroom::models
