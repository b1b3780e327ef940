#include "engine/kv/policies/adaptive_tokens.h"

#include <algorithm>

namespace headroom::engine {

PromptTokens::PromptTokens(const PromptInfo& prompt, int32_t sinks, int32_t recent)
    : sinks_(std::min(sinks, prompt.num_tokens)), recent_(std::min(recent, prompt.num_tokens)) {
  const auto class_of = [&prompt](int32_t position) {
    return prompt.classes == nullptr ? TokenClass::kOther
                                     : (*prompt.classes)[static_cast<size_t>(position)];
  };
  free_ = {0};
  punctuation_ = {0};
  for (int32_t tail = 1; tail <= prompt.num_tokens; ++tail) {
    const int32_t position = prompt.num_tokens - tail;
    const TokenClass token_class = class_of(position);
    const bool mandatory =
        position < sinks_ || tail <= recent_ || token_class == TokenClass::kSpecial;
    free_.push_back(free_.back() + (mandatory ? 0 : 1));
    punctuation_.push_back(punctuation_.back() +
                           (!mandatory && token_class == TokenClass::kPunctuation ? 1 : 0));
    if (token_class == TokenClass::kSpecial) {
      special_.push_back(position);
    }
  }
  std::reverse(special_.begin(), special_.end());
}

int32_t PromptTokens::NumContent(int32_t num_newest) const {
  const auto tail = std::lower_bound(free_.begin(), free_.end(), num_newest) - free_.begin();
  return free_.back() - punctuation_.back() + punctuation_[static_cast<size_t>(tail)];
}

TspPlan ProtectRows(const PromptTokens& tokens, int64_t num_rows, const LaterHeads& later) {
  TspPlan plan;
  plan.sink_slots = tokens.sink_tokens();
  plan.recent_slots = tokens.recent_tokens();
  plan.keep_slots = tokens.special();
  plan.overran = num_rows < tokens.num_mandatory();
  plan.num_rows = static_cast<int32_t>(std::max<int64_t>(num_rows, tokens.num_mandatory()));
  const int32_t spare = plan.num_rows - tokens.num_mandatory();
  int32_t tail = std::min(later.window, plan.num_rows / 2);
  while (tail > plan.recent_slots && tokens.NumFree(tail) > spare) {
    --tail;
  }
  plan.recent_slots = std::max(plan.recent_slots, tail);
  if (later.punctuation) {
    const int32_t there =
        tokens.NumPunctuation(tokens.num_tokens()) - tokens.NumPunctuation(plan.recent_slots);
    plan.punctuation_rows =
        std::min({there, spare - tokens.NumFree(plan.recent_slots),
                  static_cast<int32_t>(ScalePpm(kTspPunctuationSharePpm, plan.num_rows))});
  }
  return plan;
}

}  // namespace headroom::engine
