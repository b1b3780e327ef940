// What several policies share: refusals, the two phases of TSP, floors.
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

}  // namespace headroom::engine
