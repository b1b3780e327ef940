// Where TSP cuts: FastKV's insight that the tokens that matter freeze at some layer [2502.01068],
// and the layers of the heads that fetch.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/kv/head_map.h"

namespace headroom::profiler {

struct TspOptions {
  int64_t tsp_ppm = 200'000;          // tau that candidates are judged at
  int64_t frozen_ppm = 900'000;       // overlap of top tokens from which on they count as frozen
  int64_t probe_above_ppm = 100'000;  // probe score that may lie above the layer
  int64_t most_above_ppm = 500'000;   // validated: the same, unless only layers with more will do
  int64_t seen_share_ppm = 950'000;   // validated: answers, as a share of the full cache's
  int64_t delta_nll_tolerance_ppm = 100'000;  // validated: loss above the best candidate's
};

// Share of (row, layer) pairs that still run when rows go on above `layer` as tau says.
int64_t RowLayersPpm(int32_t layer, int32_t num_layers, int64_t tsp_ppm);

// Candidates and a first choice from what profiling saw. `overlap_ppm` [num_layers] or empty, heads
// [num_layers, num_kv_heads]. Candidates: the layer where top tokens freeze, those that leave a
// half, a quarter, a tenth, a twentieth and none of the dense heads' probe score above them, and
// FastKV's default floor(L / 2) - 1. The choice without losses: where the tokens freeze; else the
// first layer with little enough probe score above it; else the default.
engine::TspChoice ChooseTspLayer(const std::vector<int64_t>& overlap_ppm,
                                 const std::vector<engine::HeadEntry>& heads, int32_t num_layers,
                                 const TspOptions& options = {});

// The choice once candidates are validated: the smallest layer that answers enough seen needles of
// what the full cache does (`full_seen_ppm`; -1: no needles were asked) at a loss within the
// tolerance, first of those with most of the probe score at or below them: what few held-out
// questions do not need from above others may. When none does, the one with the most answers, then
// the least loss, stays the choice. Candidates that were not validated are passed over; without any
// the choice stays as it is.
void ChooseByLoss(int64_t full_seen_ppm, const TspOptions& options, engine::TspChoice* choice);

}  // namespace headroom::profiler
