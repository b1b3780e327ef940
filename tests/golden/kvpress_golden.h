// Kept sets of kvpress 0.5.5 (data/goldens/kvpress) and Headroom's settings for them.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "engine/kv/budget.h"
#include "tests/golden/kept_set_golden.h"

namespace headroom::testing {

inline engine::KvPolicySpec KvPressSpec(const json& golden) {
  engine::KvPolicySpec spec;
  spec.policy = golden["policy"];
  spec.retention_ppm = golden["kv_retention_ppm"];
  spec.window = 8;
  spec.window_raw = true;
  spec.sink_tokens = 0;
  spec.pool = kernels::PoolKind::kAvg;
  spec.pool_width = 7;
  spec.min_prompt = 0;
  if (spec.policy == "streaming") {
    spec.sink_tokens = 4;
  } else if (spec.policy == "adakv") {
    spec.options.alpha_ppm = std::llround(golden["alpha"].get<double>() * 1e6);
  } else if (spec.policy == "observed") {
    spec.policy = "h2o";
    spec.options.count_normalised = true;
    spec.options.recent_share_ppm = 0;
  }
  return spec;
}

// The cut of the pool that the heads of a layer share: the worst score that any head won beyond its
// safe entries.
inline double PoolCut(const json& golden, size_t layer, const LayerScores& scores) {
  const int64_t even =
      golden["kv_retention_ppm"].get<int64_t>() * golden["tokens"].get<int64_t>() / 1'000'000;
  const int64_t alpha_ppm = std::llround(golden["alpha"].get<double>() * 1e6);
  const auto safe = std::max<int64_t>({1, 8, alpha_ppm * even / 1'000'000});
  double cut = INFINITY;
  for (size_t head = 0; head < golden["kept"][layer].size(); ++head) {
    const std::vector<int32_t> kept = golden["kept"][layer][head];
    if (static_cast<int64_t>(kept.size()) > safe) {
      cut = std::min(cut, CutOf(kept, HeadScores(scores, head)));
    }
  }
  return cut;
}

// One layer's sets against the golden's. adakv: a tie at the pool's cut may move an entry from one
// head to another.
inline void ExpectKeptSets(const json& golden, size_t layer,
                           const std::vector<std::vector<int32_t>>& got,
                           const std::vector<LayerScores>& scores) {
  size_t num_got = 0;
  size_t num_wanted = 0;
  for (size_t head = 0; head < got.size(); ++head) {
    const std::vector<int32_t> wanted = golden["kept"][layer][head];
    num_got += got[head].size();
    num_wanted += wanted.size();
    if (scores.empty()) {
      EXPECT_EQ(got[head], wanted) << "layer " << layer << " kv head " << head;
      continue;
    }
    const std::vector<float> head_scores = HeadScores(scores[layer], head);
    std::vector<double> cuts = {CutOf(wanted, head_scores)};
    if (golden["policy"] == "adakv") {
      cuts.push_back(PoolCut(golden, layer, scores[layer]));
    } else {
      EXPECT_EQ(got[head].size(), wanted.size());
    }
    EXPECT_TRUE(DifferOnlyAt(cuts, got[head], wanted, head_scores))
        << "layer " << layer << " kv head " << head;
  }
  EXPECT_EQ(num_got, num_wanted);
}

}  // namespace headroom::testing
