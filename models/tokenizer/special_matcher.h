// Finds special pieces in text, and keeps message text from spelling them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "models/tokenizer/tokenizer.h"

namespace headroom::models {

// Answers whether a span of text holds message bytes. Questions must come with ascending spans:
// then all of them together cost one walk over the ranges.
class MessageCursor {
 public:
  // `ranges` must outlive the cursor.
  explicit MessageCursor(const std::vector<ByteRange>& ranges) : ranges_(ranges) {}

  // True when [begin, end) and a message range have a byte in common.
  bool Overlaps(size_t begin, size_t end);

  // The first message byte at or after `begin`, or the largest size_t.
  size_t NextMessageByte(size_t begin);

 private:
  const std::vector<ByteRange>& ranges_;
  size_t index_ = 0;
};

// A trie over special pieces. Immutable after the last Add; any thread may search.
class SpecialMatcher {
 public:
  struct Match {
    int32_t id = -1;
    size_t num_bytes = 0;
  };

  // `allowed_in_messages`: message bytes may spell it too. A spelling added twice keeps the first
  // id. Empty spellings are ignored.
  void Add(std::string_view spelling, int32_t id, bool allowed_in_messages);

  // False when no piece starts with this byte.
  bool MayStartWith(char byte) const { return roots_[static_cast<uint8_t>(byte)] != 0; }

  // The longest piece at `position` of which no byte from `first_message_byte` on is part, or
  // the longest that messages may spell, whichever is longer.
  std::optional<Match> Find(std::string_view text, size_t position,
                            size_t first_message_byte) const;

 private:
  struct Node {
    int32_t id = -1;  // -1: no piece ends here
    bool allowed_in_messages = false;
  };

  std::vector<Node> nodes_ = {Node{}};               // [0] is the root
  std::unordered_map<uint64_t, uint32_t> children_;  // node * 256 + byte -> node
  std::array<uint32_t, 256> roots_ = {};             // the root's children; 0: none
};

}  // namespace headroom::models
