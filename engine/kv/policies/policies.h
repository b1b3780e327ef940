// The policies that the registry lists, one file each.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/kv/head_map.h"
#include "engine/kv/policy.h"

namespace headroom::engine {

// Keeps everything; with tsp_ratio < 1 everything of the rows that each layer saw ("TSP only").
std::unique_ptr<KvPolicy> MakeFullPolicy();

// Sinks and the most recent tokens; decode keeps to the prompt's budget [StreamingLLM, 2309.17453].
std::unique_ptr<KvPolicy> MakeStreamingPolicy();

// Token-selective propagation and uniform window-score retention [FastKV, 2502.01068 v3].
std::unique_ptr<KvPolicy> MakeFastKvPolicy();

// Window-score retention without TSP [SnapKV, 2404.14469].
std::unique_ptr<KvPolicy> MakeSnapKvPolicy();

// Window scores with one pool per layer [AdaKV, 2407.11550].
std::unique_ptr<KvPolicy> MakeAdaKvPolicy();

// Less in deeper layers, in rows and in entries [PyramidInfer, 2405.12532].
std::unique_ptr<KvPolicy> MakePyramidInferPolicy();

// One layer's scores choose the tokens of a fresh prompt [GemFilter, 2409.17422].
std::unique_ptr<KvPolicy> MakeGemFilterPolicy();

// Recent tokens and heavy hitters by column sums [H2O, 2306.14048].
std::unique_ptr<KvPolicy> MakeH2oPolicy();

// Pivotal tokens by counts of the last rows [Scissorhands, 2305.17118].
std::unique_ptr<KvPolicy> MakeScissorhandsPolicy();

// Per head the cheapest set that keeps its attention [FastGen, 2310.01801].
std::unique_ptr<KvPolicy> MakeFastGenPolicy();

// The head map spends FastKV's budgets; not in the registry until a map is loaded. `prefer` names
// one of the map's plans; without it half of the elastic pool goes to dense heads, none to quotas.
struct AdaptiveSettings {
  int32_t recent_tokens = 8;    // mandatory at the end, where the window is shorter
  int32_t floor_entries = 32;   // that heavy and dense heads get before they compete
  int32_t newest_entries = 32;  // of a floor so many are the newest, any others the best by score
  int32_t oldest_entries = 24;  // that every head gets, from the prompt's beginning, in large pools
  // What dense heads get up to this retention is content: punctuation is a fourth of a prose
  // prompt, and where few heads can be whole one more of them is worth more (docs/adr/0006).
  int64_t content_retention_ppm = 200'000;
};
std::unique_ptr<KvPolicy> MakeAdaptivePolicy(std::shared_ptr<const HeadMap> map,
                                             const std::string& prefer,
                                             const AdaptiveSettings& settings = {});

// A seeded random choice: the floor.
std::unique_ptr<KvPolicy> MakeRandomPolicy();

}  // namespace headroom::engine
