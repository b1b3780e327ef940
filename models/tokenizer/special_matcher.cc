#include "models/tokenizer/special_matcher.h"

#include <algorithm>
#include <limits>

namespace headroom::models {

bool MessageCursor::Overlaps(size_t begin, size_t end) {
  return begin < end && NextMessageByte(begin) < end;
}

size_t MessageCursor::NextMessageByte(size_t begin) {
  while (index_ < ranges_.size() && (ranges_[index_].end <= ranges_[index_].begin ||
                                     ranges_[index_].end <= static_cast<int64_t>(begin))) {
    ++index_;
  }
  if (index_ == ranges_.size()) {
    return std::numeric_limits<size_t>::max();
  }
  return std::max(begin, static_cast<size_t>(std::max<int64_t>(ranges_[index_].begin, 0)));
}

void SpecialMatcher::Add(std::string_view spelling, int32_t id, bool allowed_in_messages) {
  if (spelling.empty()) {
    return;
  }
  uint32_t node = 0;
  for (const char c : spelling) {
    const auto byte = static_cast<uint8_t>(c);
    const auto [child, inserted] =
        children_.try_emplace(uint64_t{node} * 256 + byte, static_cast<uint32_t>(nodes_.size()));
    if (inserted) {
      nodes_.push_back(Node{});
    }
    if (node == 0) {
      roots_[byte] = child->second;
    }
    node = child->second;
  }
  if (nodes_[node].id < 0) {
    nodes_[node] = Node{id, allowed_in_messages};
  }
}

std::optional<SpecialMatcher::Match> SpecialMatcher::Find(std::string_view text, size_t position,
                                                          size_t first_message_byte) const {
  uint32_t node = roots_[static_cast<uint8_t>(text[position])];
  if (node == 0) {
    return std::nullopt;
  }
  std::optional<Match> longest;
  for (size_t end = position + 1;; ++end) {
    const Node& here = nodes_[node];
    if (here.id >= 0 && (here.allowed_in_messages || end <= first_message_byte)) {
      longest = Match{here.id, end - position};
    }
    if (end == text.size()) {
      break;
    }
    const auto child = children_.find(uint64_t{node} * 256 + static_cast<uint8_t>(text[end]));
    if (child == children_.end()) {
      break;
    }
    node = child->second;
  }
  return longest;
}

}  // namespace headroom::models
