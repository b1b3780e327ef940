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

// Shares grow with the retention in both parts: dense entries, and what is left of them.
void KeepNested(std::vector<engine::SpendPoint>& points) {
  for (size_t i = 1; i < points.size(); ++i) {
    const engine::SpendPoint& before = points[i - 1];
    engine::SpendPoint& point = points[i];
    const int64_t dense = before.retention_ppm * before.dense_share_ppm;
    const int64_t rest = before.retention_ppm * (engine::kPpm - before.dense_share_ppm);
    const int64_t least = (dense + point.retention_ppm - 1) / point.retention_ppm;
    const int64_t most = engine::kPpm - (rest + point.retention_ppm - 1) / point.retention_ppm;
    point.dense_share_ppm = std::clamp(point.dense_share_ppm, least, std::max(least, most));
  }
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
    const SplitResult& chosen = of_retention[ChooseSplit(prefer, of_retention, options)];
    plan.points.push_back({.retention_ppm = retention, .dense_share_ppm = chosen.dense_share_ppm});
  }
  KeepNested(plan.points);
  return plan;
}

}  // namespace headroom::profiler
