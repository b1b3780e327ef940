// What several policies share: refusals, the two phases of TSP, floors, uniform plans.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "engine/kv/policy.h"

namespace headroom::engine {

// Ranges of every numeric field, whatever the policy.
Status ValidateRanges(const KvPolicySpec& spec);

// Refuse a field that `policy` cannot use; the message names both.
Status RefuseRetention(const std::string& policy, const KvPolicySpec& spec);
Status RefuseTsp(const std::string& policy, const KvPolicySpec& spec);
Status RefuseTypedDecode(const std::string& policy, const KvPolicySpec& spec);

// One phase through all layers.
std::vector<PrefillPhase> SinglePhase(const KvModelShape& shape);

// The window's queries as softmax scores; 0 rows: nothing is scored.
ScoreNeeds WindowNeeds(int32_t window_rows);

// Two phases split at the TSP layer, or one where no row would be dropped.
std::vector<PrefillPhase> TspPhases(const KvPolicySpec& spec, const KvModelShape& shape,
                                    const PromptInfo& prompt);
// Sinks and window are protected; the best of the rest fill up to tau * N.
TspPlan PlanTspRows(const KvPolicySpec& spec, const PromptInfo& prompt);

// min(floor(rho * N), num_slots), raised to the sinks and the window: entries of one head.
struct HeadBudget {
  int32_t num_entries = 0;
  int32_t sink_slots = 0;
  int32_t window_slots = 0;
  bool overran = false;  // sinks and window alone were more than the budget
};
HeadBudget UniformHeadBudget(const KvPolicySpec& spec, const PromptInfo& prompt, int32_t num_slots);

// Every head keeps sinks, window and the best of the rest by its own window scores.
LayerPlan UniformWindowPlan(const KvPolicySpec& spec, const KvModelShape& shape,
                            const PromptInfo& prompt, int32_t num_slots);

// Sinks, the most recent and the best columns of the rest, in every head alike. The budget is
// raised to what is protected, and to 1.
struct HeavyHitterBudget {
  int64_t entries = 0;
  int32_t sinks = 0;
  int32_t recent = 0;
};
LayerPlan HeavyHitterPlan(const KvModelShape& shape, const HeavyHitterBudget& budget,
                          ScoreKind score, int32_t num_slots);
// Typed decode of a head that was given `plan`: it keeps to its size by scores that go on from the
// prompt's. One that was left whole grows.
DecodePlan LowestScoreDecode(const LayerPlan& plan, int32_t kv_head, DecodeScore score);

// How many decoded special tokens and punctuation marks a head of typed decode keeps at most: a
// twentieth of the prompt, a page at least.
int32_t TypedPinnedRows(int32_t num_tokens);

// `head` for every KV head, or keep_all where it keeps all `num_slots`.
LayerPlan SameForAllHeads(const KvModelShape& shape, const HeadPlan& head, int32_t num_slots);

}  // namespace headroom::engine
