#include "engine/kv/policies/adaptive_heads.h"

#include <algorithm>

#include "engine/kv/budget.h"

namespace headroom::engine {
namespace {

// Below it a head does not rely on its type alone.
constexpr int64_t kSureConfidencePpm = 800'000;

}  // namespace

HeadType SpentType(const HeadEntry& head) {
  const bool sure = !head.borderline && head.confidence_ppm >= kSureConfidencePpm;
  return sure ? head.type : std::max(head.type, HeadType::kHeavy);
}

bool IsElastic(HeadType type) { return type == HeadType::kHeavy || type == HeadType::kDense; }

int64_t RungBudget(const HeadEntry& head, int64_t num_tokens) {
  return std::min(num_tokens, head.budget_tokens + ScalePpm(head.budget_ppm, num_tokens));
}

int32_t LocalWindow(const MapProfile& profile, const HeadEntry& head, int64_t num_tokens) {
  if (SpentType(head) != HeadType::kLocal) {
    return 0;
  }
  int64_t share = head.budget_ppm;
  if (head.keeps_punctuation && profile.reference_tokens > 0) {
    share -= profile.reference_punctuation * kPpm / profile.reference_tokens;
  }
  const int64_t tokens = std::max<int64_t>(0, head.budget_tokens - profile.reference_special);
  const int64_t window = tokens + ScalePpm(std::max<int64_t>(0, share), num_tokens);
  return static_cast<int32_t>(std::min(window > 0 ? window : head.window, num_tokens));
}

bool KeepsPunctuation(const HeadEntry& head) {
  const HeadType type = SpentType(head);
  return type == HeadType::kPunct || (type == HeadType::kLocal && head.keeps_punctuation);
}

}  // namespace headroom::engine
