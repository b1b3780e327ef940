#include "profiler/spend_choice.h"

#include <algorithm>
#include <limits>
#include <map>

#include "base/check.h"
#include "engine/kv/budget.h"

namespace headroom::profiler {
namespace {

using engine::kPpm;
using engine::SpendPoint;

// Of what the full cache answers; as many are all, and what was not asked counts so.
double Answered(double share) { return share < 0.0 ? 1.0 : std::min(share, 1.0); }

SpendPoint PointOf(const SplitResult& split) {
  return {.retention_ppm = split.retention_ppm, .dense_share_ppm = split.dense_share_ppm};
}

// Whether both parts are at least as large at `after`, the larger retention.
bool Nests(const SpendPoint& before, const SpendPoint& after) {
  return before.retention_ppm * before.dense_share_ppm <=
             after.retention_ppm * after.dense_share_ppm &&
         before.retention_ppm * (kPpm - before.dense_share_ppm) <=
             after.retention_ppm * (kPpm - after.dense_share_ppm);
}

// The best way to a point, from the least retention on.
struct Path {
  double worth = -std::numeric_limits<double>::infinity();
  std::vector<SpendPoint> points;
};

const Path& Best(const std::vector<Path>& paths) {
  return *std::max_element(paths.begin(), paths.end(),
                           [](const Path& a, const Path& b) { return a.worth < b.worth; });
}

}  // namespace

double WorthOf(const std::string& prefer, const SplitResult& split,
               const SpendChoiceOptions& options) {
  const double nats = prefer == "answers"    ? options.answers_nats
                      : prefer == "balanced" ? options.balanced_nats
                                             : 0.0;
  return nats * (Answered(split.seen) + Answered(split.unseen)) / 2.0 - split.delta_nll;
}

engine::SpendPlan ChooseSpend(const std::string& prefer, const std::vector<SplitResult>& splits,
                              const SpendChoiceOptions& options) {
  std::map<int64_t, std::vector<SplitResult>> by_retention;
  for (const SplitResult& split : splits) {
    if (split.local_share_ppm == 0) {
      by_retention[split.retention_ppm].push_back(split);
    }
  }
  std::vector<Path> before = {{.worth = 0.0, .points = {}}};
  for (const auto& [retention, of_retention] : by_retention) {
    std::vector<Path> paths;
    for (const SplitResult& split : of_retention) {
      Path path;
      for (const Path& start : before) {
        const double worth = start.worth + WorthOf(prefer, split, options);
        if (worth > path.worth &&
            (start.points.empty() || Nests(start.points.back(), PointOf(split)))) {
          path = {.worth = worth, .points = start.points};
          path.points.push_back(PointOf(split));
        }
      }
      if (!path.points.empty()) {
        paths.push_back(std::move(path));
      }
    }
    HEADROOM_CHECK(!paths.empty());
    before = std::move(paths);
  }
  return {.prefer = prefer,
          .local_share_ppm = 0,
          .layers_by_demand = false,
          .points = Best(before).points};
}

}  // namespace headroom::profiler
