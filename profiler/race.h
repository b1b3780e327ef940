// The best of many candidates without measuring each of them on every sample.
//
// All candidates are measured on a few samples, the best of them on more, and those that are left
// on all (successive halving, here by three). Candidates meet the same samples in the same order,
// so that differences are paired. Deterministic: equal losses are told apart by index. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/status.h"

namespace headroom::profiler {

struct RacedCandidate {
  size_t index = 0;
  double loss = 0.0;  // sum over all samples
};

// The sum of losses of candidate `index` over the samples [begin, end).
using LossOfSamples = std::function<StatusOr<double>(size_t index, size_t begin, size_t end)>;

// Those that were measured on all samples, the least loss first: at least kLeastSurvivors, or all.
// The first error of `loss_of` ends it.
inline constexpr size_t kLeastSurvivors = 4;
StatusOr<std::vector<RacedCandidate>> Race(size_t num_candidates, size_t num_samples,
                                           const LossOfSamples& loss_of);

// Samples that a race measures, all candidates together.
int64_t RaceWork(size_t num_candidates, size_t num_samples);

}  // namespace headroom::profiler
