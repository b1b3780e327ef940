#include "profiler/evaluation/html_text.h"

#include "models/tokenizer/utf8.h"

namespace headroom::profiler {

std::string EscapeHtml(std::string_view text) {
  std::string escaped;
  for (size_t i = 0; i < text.size();) {
    const models::Utf8Char character = models::DecodeUtf8(text, i);
    const auto length = static_cast<size_t>(character.num_bytes);
    if (character.result != models::Utf8Result::kCharacter || character.code_point < 0x20 ||
        (character.code_point >= 0x7f && character.code_point < 0xa0)) {
      escaped += '?';
      i += length;
      continue;
    }
    switch (text[i]) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped.append(text.substr(i, length));
    }
    i += length;
  }
  return escaped;
}

}  // namespace headroom::profiler
