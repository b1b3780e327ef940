// Which split of a budget a map recommends, given what splits were measured to do.
//
// Entries given to dense heads are missing in next-word prediction, so that each preference is a
// point on one front. What an answer is worth tells them apart: `answers` pays many nats of
// delta-NLL for it, `balanced` some, `fluency` none. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/kv/head_map.h"

namespace headroom::profiler {

// One split at one retention, on held-out material. Needle shares are right answers over those of
// the full cache; more than 1 is worth no more. -1: none was asked, which counts as all answered.
struct SplitResult {
  int64_t retention_ppm = 0;
  int64_t dense_share_ppm = 0;
  int64_t local_share_ppm = 0;
  double delta_nll = 0.0;
  double seen = -1.0;
  double unseen = -1.0;
};

struct SpendChoiceOptions {
  // What all answers of both protocols are worth, in nats of delta-NLL. One nat makes a text nearly
  // three times as unlikely. `fluency`: nothing.
  double answers_nats = 10.0;
  double balanced_nats = 1.25;
};

// What a split is worth under a preference, in nats: its answers less its delta-NLL.
double WorthOf(const std::string& prefer, const SplitResult& split,
               const SpendChoiceOptions& options);

// The plan of a preference: of each retention one of its splits with local share 0, together worth
// the most of those at which neither the dense part nor the rest shrinks as the retention grows. Of
// equal plans the first. `splits` have the same dense shares at every retention (so that there is
// a plan: one share at all).
engine::SpendPlan ChooseSpend(const std::string& prefer, const std::vector<SplitResult>& splits,
                              const SpendChoiceOptions& options);

}  // namespace headroom::profiler
