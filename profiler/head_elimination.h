// An order of heads by what each is worth beside the others: backward elimination with exchanges.
//
// From a set of heads the one goes whose absence costs least, again and again. Of two heads that do
// the same work the first to go costs nothing, and it may be the better one beside those that are
// left in the end: where so many are left as matter, heads that went are tried in their places.
// Candidates race (race.h). Deterministic; among equal losses the earlier head stays. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/status.h"

namespace headroom::profiler {

struct EliminationOptions {
  // While more than so many are left, two go at a time; four while more than twice as many are.
  size_t num_single = 12;
  size_t num_exchanged = 0;  // as few are left when exchanges are tried; 0: none
};

// The sum of losses over the samples [begin, end) where `heads` alone are there.
using LossOfHeads =
    std::function<StatusOr<double>(const std::vector<size_t>& heads, size_t begin, size_t end)>;

// `heads`, the most valuable first. Given in an order of their own, which equal losses follow.
StatusOr<std::vector<size_t>> OrderByElimination(const std::vector<size_t>& heads,
                                                 size_t num_samples,
                                                 const EliminationOptions& options,
                                                 const LossOfHeads& loss_of);

// Samples that it measures at most, all candidates together.
int64_t EliminationWork(size_t num_heads, size_t num_samples, const EliminationOptions& options);

}  // namespace headroom::profiler
