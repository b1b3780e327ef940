// Tokens of one prompt as `adaptive` counts them: which are mandatory in every head, how many
// others lie near the end, and which rows TSP has to let through.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/kv/policy.h"

namespace headroom::engine {

// Punctuation that one head keeps, of the rows its layer sees; and that TSP protects, of its rows.
inline constexpr int64_t kPunctuationSharePpm = 50'000;
inline constexpr int64_t kTspPunctuationSharePpm = 100'000;

class PromptTokens {
 public:
  // Mandatory: the first `sinks`, tokens of class kSpecial, the last `recent`.
  PromptTokens(const PromptInfo& prompt, int32_t sinks, int32_t recent);

  int32_t num_tokens() const { return static_cast<int32_t>(free_.size()) - 1; }
  int32_t sink_tokens() const { return sinks_; }
  int32_t recent_tokens() const { return recent_; }
  int32_t num_mandatory() const { return num_tokens() - free_.back(); }
  const std::vector<int32_t>& special() const { return special_; }  // positions, ascending

  // Of the last `tail` tokens those that are not mandatory, and those of them that are punctuation.
  int32_t NumFree(int32_t tail) const { return free_[static_cast<size_t>(tail)]; }
  int32_t NumPunctuation(int32_t tail) const { return punctuation_[static_cast<size_t>(tail)]; }
  // How many of the tokens that are not mandatory are no punctuation, or among the newest so many.
  int32_t NumContent(int32_t num_newest) const;

 private:
  int32_t sinks_ = 0;
  int32_t recent_ = 0;
  std::vector<int32_t> special_;
  std::vector<int32_t> free_;         // [N + 1], by tail
  std::vector<int32_t> punctuation_;  // [N + 1], by tail
};

// What heads above the TSP layer are there for.
struct LaterHeads {
  int32_t window = 0;        // the longest window of a local head
  bool punctuation = false;  // one keeps punctuation
};

// The rows that go on: `num_rows`, raised to the mandatory ones. Protected beside those are the
// longest later window, as far as it takes no more than half of the rows, and, for heads that keep
// punctuation, the best of it up to a tenth of the rows. These never raise num_rows.
TspPlan ProtectRows(const PromptTokens& tokens, int64_t num_rows, const LaterHeads& later);

}  // namespace headroom::engine
