#include "profiler/spend_choice.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "engine/kv/budget.h"

namespace headroom::profiler {
namespace {

double OrAll(double share) { return share < 0.0 ? 1.0 : share; }

// Both protocols alike.
double Answered(const SplitResult& split) {
  return (OrAll(split.seen) + OrAll(split.unseen)) / 2.0;
}

bool KeepsAnswers(const SplitResult& split, double share) {
  return OrAll(split.seen) >= share && OrAll(split.unseen) >= share;
}

// Whether `a` is a better choice than `b`; equal ones are ordered by their place.
bool IsBetter(const std::string& prefer, const SplitResult& a, const SplitResult& b,
              const SpendChoiceOptions& options) {
  if (prefer == "answers") {
    if (Answered(a) != Answered(b)) {
      return Answered(a) > Answered(b);
    }
    return a.margin != b.margin ? a.margin > b.margin : a.delta_nll < b.delta_nll;
  }
  if (prefer == "balanced") {
    const bool keeps_a = KeepsAnswers(a, options.answered);
    const bool keeps_b = KeepsAnswers(b, options.answered);
    if (keeps_a != keeps_b) {
      return keeps_a;
    }
    if (!keeps_a) {
      const double worth_a = Answered(a) * options.nats_of_all_answers - a.delta_nll;
      const double worth_b = Answered(b) * options.nats_of_all_answers - b.delta_nll;
      return worth_a > worth_b;
    }
  }
  return a.delta_nll < b.delta_nll;
}

// The shares at `retention_ppm` at which neither part shrinks behind `before`: dense entries, and
// what is left of them.
struct ShareRange {
  int64_t least = 0;
  int64_t most = engine::kPpm;
};
ShareRange NestedShares(const engine::SpendPoint& before, int64_t retention_ppm) {
  const int64_t dense = before.retention_ppm * before.dense_share_ppm;
  const int64_t rest = before.retention_ppm * (engine::kPpm - before.dense_share_ppm);
  ShareRange range;
  range.least = (dense + retention_ppm - 1) / retention_ppm;
  range.most = std::max(range.least, engine::kPpm - (rest + retention_ppm - 1) / retention_ppm);
  return range;
}

}  // namespace

size_t ChooseSplit(const std::string& prefer, const std::vector<SplitResult>& splits,
                   const SpendChoiceOptions& options) {
  HEADROOM_CHECK(!splits.empty());
  size_t best = 0;
  for (size_t i = 1; i < splits.size(); ++i) {
    if (IsBetter(prefer, splits[i], splits[best], options)) {
      best = i;
    }
  }
  return best;
}

engine::SpendPlan ChooseSpend(const std::string& prefer, const std::vector<SplitResult>& splits,
                              const SpendChoiceOptions& options) {
  std::map<int64_t, std::vector<SplitResult>> by_retention;
  for (const SplitResult& split : splits) {
    if (split.local_share_ppm == 0) {
      by_retention[split.retention_ppm].push_back(split);
    }
  }
  engine::SpendPlan plan;
  plan.prefer = prefer;
  for (const auto& [retention, of_retention] : by_retention) {
    const ShareRange range =
        plan.points.empty() ? ShareRange() : NestedShares(plan.points.back(), retention);
    std::vector<SplitResult> nested;
    for (const SplitResult& split : of_retention) {
      if (split.dense_share_ppm >= range.least && split.dense_share_ppm <= range.most) {
        nested.push_back(split);
      }
    }
    const std::vector<SplitResult>& from = nested.empty() ? of_retention : nested;
    const SplitResult& chosen = from[ChooseSplit(prefer, from, options)];
    plan.points.push_back(
        {.retention_ppm = retention,
         .dense_share_ppm = std::clamp(chosen.dense_share_ppm, range.least, range.most)});
  }
  return plan;
}

}  // namespace headroom::profiler
