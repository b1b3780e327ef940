#include "models/tokenizer/tokenizer.h"
#include "models/tokenizer/utf8.h"

namespace headroom::models {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

IncrementalDetokenizer::IncrementalDetokenizer(const Tokenizer& tokenizer, bool continues_text)
    : tokenizer_(tokenizer), strip_space_(!continues_text && tokenizer.strips_leading_space()) {}

std::string IncrementalDetokenizer::Add(int32_t id) {
  std::string_view bytes = tokenizer_.TokenBytes(id);
  if (bytes.empty()) {
    return {};  // a control token in front of the text does not stand for its leading space
  }
  if (strip_space_) {
    bytes.remove_prefix(bytes.front() == ' ' ? 1 : 0);
    strip_space_ = false;
  }
  pending_ += bytes;
  std::string text;
  size_t position = 0;
  while (position < pending_.size()) {
    const Utf8Char c = DecodeUtf8(pending_, position);
    if (c.result == Utf8Result::kTruncated) {
      break;
    }
    if (c.result == Utf8Result::kCharacter) {
      text.append(pending_, position, c.num_bytes);
    } else {
      text += kReplacement;
    }
    position += c.num_bytes;
  }
  pending_.erase(0, position);
  return text;
}

std::string IncrementalDetokenizer::Flush() {
  // What is held back is one maximal subpart: one U+FFFD.
  std::string text(pending_.empty() ? std::string_view() : kReplacement);
  pending_.clear();
  return text;
}

}  // namespace headroom::models
