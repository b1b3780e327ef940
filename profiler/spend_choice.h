// Which split of a budget a map recommends, given what splits were measured to do.
//
// Entries given to dense heads are missing in next-word prediction, so that each preference is a
// point on one front: `answers` keeps what questions need, `fluency` the likeliest continuation,
// `balanced` as many answers as the best split within a tolerance, as fluently as that allows.
// Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/kv/head_map.h"

namespace headroom::profiler {

// One split at one retention, on held-out material. Needle shares are of the prompts that the full
// cache answers; -1: none was asked, which counts as answered.
struct SplitResult {
  int64_t retention_ppm = 0;
  int64_t dense_share_ppm = 0;
  int64_t local_share_ppm = 0;
  double delta_nll = 0.0;
  double seen = -1.0;
  double unseen = -1.0;
  double margin = 0.0;  // mean log-likelihood margin of right answers; breaks ties
};

struct SpendChoiceOptions {
  // balanced: a split that answers this share of what the full cache answers, seen and unseen, has
  // kept the answers.
  double answered = 0.95;
  // balanced, where no split keeps them: what answering all is worth, in nats of delta-NLL.
  double nats_of_all_answers = 0.25;
};

// The best of `splits` (one retention, at least one) under a preference; the index.
size_t ChooseSplit(const std::string& prefer, const std::vector<SplitResult>& splits,
                   const SpendChoiceOptions& options);

// The plan of a preference from splits of several retentions with local share 0: at each retention
// the best of those at which neither part shrinks as the retention grows; where there are none, the
// best one, moved as little as that takes.
engine::SpendPlan ChooseSpend(const std::string& prefer, const std::vector<SplitResult>& splits,
                              const SpendChoiceOptions& options);

}  // namespace headroom::profiler
