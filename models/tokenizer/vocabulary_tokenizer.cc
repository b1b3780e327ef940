#include "models/tokenizer/vocabulary_tokenizer.h"

#include <optional>

namespace headroom::models {

Encoding VocabularyTokenizer::Encode(const ProvenancedText& provenanced) const {
  const std::string_view text = provenanced.text;
  const SpecialMatcher& matcher = vocabulary_.special_matcher();
  Encoding encoding;
  EncodingSink sink(provenanced.message_ranges, &encoding);
  MessageCursor cursor(provenanced.message_ranges);
  size_t segment_begin = 0;
  for (size_t position = 0; position < text.size();) {
    std::optional<SpecialMatcher::Match> match;
    if (matcher.MayStartWith(text[position])) {
      match = matcher.Find(text, position, cursor.NextMessageByte(position));
    }
    if (!match.has_value()) {
      ++position;
      continue;
    }
    if (segment_begin < position) {
      EncodeSegment(text, segment_begin, position, &sink);
    }
    sink.Add(match->id, position, position + match->num_bytes);
    position += match->num_bytes;
    segment_begin = position;
  }
  if (segment_begin < text.size()) {
    EncodeSegment(text, segment_begin, text.size(), &sink);
  }
  return encoding;
}

}  // namespace headroom::models
