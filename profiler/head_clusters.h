// Four clusters of heads, as popular descriptions of FastGen have it: for comparison. Kept mass,
// not clusters, is what FastGen's paper goes by [2310.01801, section 3.4].
#pragma once

#include <cstdint>
#include <vector>

#include "engine/kv/head_map.h"
#include "profiler/ladder.h"

namespace headroom::profiler {

struct ClusterQuality {
  int32_t num_clusters = 0;    // 0: no clustering was done
  int64_t silhouette_ppm = 0;  // mean over heads, -1e6 to 1e6
  int64_t rand_ppm = 0;        // adjusted Rand index against the threshold's types
};

// Groups heads by k-means++ (seeded, 32 restarts) on the logits of their class masses and the
// logarithm of the window that holds 95 % of their mass, and gives every head the type of its
// cluster: the assignment of special, punct, local and heavy (and dense from five clusters on) to
// clusters that fits their centres best. Sets type, window, heavy share, budget, confidence (how
// much nearer its own cluster is than the next) and what follows; recoveries, probes and curves
// stay. `num_clusters` in [2, 5].
ClusterQuality ClusterHeads(int32_t num_clusters, const Ladder& ladder,
                            const ReferenceLength& reference, int64_t recent_tokens,
                            int64_t budget_ratio_ppm, int64_t theta_ppm, uint64_t seed,
                            std::vector<engine::HeadEntry>* heads);

// Agreement of two labellings beyond chance, 1e6: the same partition [Hubert and Arabie 1985].
int64_t AdjustedRandPpm(const std::vector<int32_t>& a, const std::vector<int32_t>& b);

}  // namespace headroom::profiler
