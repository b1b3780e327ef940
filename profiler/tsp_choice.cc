#include "profiler/tsp_choice.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"

namespace headroom::profiler {
namespace {

using engine::TspCandidate;
using engine::TspChoice;

constexpr int64_t kPpm = 1'000'000;
// Shares of probe score above a layer that make it worth a look.
constexpr int64_t kProbeShares[] = {500'000, 250'000, 100'000, 50'000, 0};

// [num_layers]: share of the dense heads' probe score above each layer; empty without any.
std::vector<int64_t> ProbeAbove(const std::vector<engine::HeadEntry>& heads, int32_t num_layers) {
  const size_t per_layer = heads.size() / static_cast<size_t>(num_layers);
  std::vector<int64_t> scores(static_cast<size_t>(num_layers), 0);
  int64_t total = 0;
  for (size_t i = 0; i < heads.size(); ++i) {
    if (heads[i].type == engine::HeadType::kDense) {
      scores[i / per_layer] += heads[i].probe_ppm();
      total += heads[i].probe_ppm();
    }
  }
  if (total == 0) {
    return {};
  }
  std::vector<int64_t> above;
  int64_t left = total;
  for (const int64_t score : scores) {
    left -= score;
    above.push_back(left * kPpm / total);
  }
  return above;
}

// The first layer from which on top tokens stay; -1: nowhere below the last but one. The last
// layer has none above it.
int32_t FrozenLayer(const std::vector<int64_t>& overlap_ppm, int64_t frozen_ppm) {
  auto layer = static_cast<int32_t>(overlap_ppm.size()) - 1;
  while (layer > 0 && overlap_ppm[static_cast<size_t>(layer) - 1] >= frozen_ppm) {
    --layer;
  }
  return layer + 1 < static_cast<int32_t>(overlap_ppm.size()) ? layer : -1;
}

// The last layer is no candidate: a cut there saves nothing but its attention.
int32_t FirstAtMost(const std::vector<int64_t>& above, int64_t most) {
  const auto found =
      std::find_if(above.begin(), above.end(), [most](int64_t share) { return share <= most; });
  return std::min(static_cast<int32_t>(found - above.begin()),
                  std::max(static_cast<int32_t>(above.size()) - 2, 0));
}

}  // namespace

int64_t RowLayersPpm(int32_t layer, int32_t num_layers, int64_t tsp_ppm) {
  const int64_t whole = int64_t{layer} + 1;
  return (whole * kPpm + (num_layers - whole) * tsp_ppm) / num_layers;
}

TspChoice ChooseTspLayer(const std::vector<int64_t>& overlap_ppm,
                         const std::vector<engine::HeadEntry>& heads, int32_t num_layers,
                         const TspOptions& options) {
  HEADROOM_CHECK(num_layers >= 1 && heads.size() % static_cast<size_t>(num_layers) == 0);
  const int32_t fallback = std::max(0, num_layers / 2 - 1);
  const int32_t frozen = FrozenLayer(overlap_ppm, options.frozen_ppm);
  const std::vector<int64_t> above = ProbeAbove(heads, num_layers);
  std::set<int32_t> layers = {fallback};
  if (frozen >= 0) {
    layers.insert(frozen);
  }
  for (const int64_t share : kProbeShares) {
    if (!above.empty()) {
      layers.insert(FirstAtMost(above, share));
    }
  }
  TspChoice choice;
  choice.overlap_ppm = overlap_ppm;
  for (const int32_t layer : layers) {
    choice.candidates.push_back(
        {.layer = layer,
         .tsp_ppm = options.tsp_ppm,
         .row_layers_ppm = RowLayersPpm(layer, num_layers, options.tsp_ppm),
         .probe_above_ppm = above.empty() ? 0 : above[static_cast<size_t>(layer)]});
  }
  choice.layer = frozen >= 0     ? frozen
                 : above.empty() ? fallback
                                 : FirstAtMost(above, options.probe_above_ppm);
  return choice;
}

void ChooseByLoss(int64_t full_seen_ppm, const TspOptions& options, TspChoice* choice) {
  std::vector<const TspCandidate*> validated;
  int64_t least_loss = std::numeric_limits<int64_t>::max();
  for (const TspCandidate& candidate : choice->candidates) {
    if (candidate.validated) {
      validated.push_back(&candidate);
      least_loss = std::min(least_loss, candidate.delta_nll_ppm);
    }
  }
  for (const int64_t most_above : {options.most_above_ppm, kPpm}) {
    for (const TspCandidate* candidate : validated) {
      // Without a share there is nothing to lose: the full cache itself answered none.
      const bool answers = full_seen_ppm <= 0 || candidate->seen_ppm < 0 ||
                           candidate->seen_ppm * kPpm >= full_seen_ppm * options.seen_share_ppm;
      if (answers && candidate->probe_above_ppm <= most_above &&
          candidate->delta_nll_ppm <= least_loss + options.delta_nll_tolerance_ppm) {
        choice->layer = candidate->layer;
        return;
      }
    }
  }
  const auto best = std::max_element(validated.begin(), validated.end(),
                                     [](const TspCandidate* a, const TspCandidate* b) {
                                       return std::pair(a->seen_ppm, -a->delta_nll_ppm) <
                                              std::pair(b->seen_ppm, -b->delta_nll_ppm);
                                     });
  if (best != validated.end()) {
    choice->layer = (*best)->layer;
  }
}

}  // namespace headroom::profiler
