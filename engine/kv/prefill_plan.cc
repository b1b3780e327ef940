#include "engine/kv/prefill_plan.h"

#include <algorithm>

#include "base/check.h"

namespace headroom::engine {
namespace {

int64_t PagesOf(int64_t num_slots) {
  return (num_slots + kernels::kPageSize - 1) / kernels::kPageSize;
}

void CheckPlan(const PrefillPlan& plan, const KvModelShape& shape) {
  HEADROOM_CHECK(!plan.phases.empty());
  HEADROOM_CHECK(plan.needs.columns.empty() || plan.phases.size() == 1);
  int32_t layer = 0;
  for (size_t p = 0; p < plan.phases.size(); ++p) {
    const PrefillPhase& phase = plan.phases[p];
    HEADROOM_CHECK(phase.layer_begin == layer && phase.layer_end >= layer);
    HEADROOM_CHECK(phase.selects_rows == (p + 1 < plan.phases.size()));
    // Rows kept aside by an earlier phase would be gone after a restart.
    HEADROOM_CHECK(!phase.restarts || (phase.selects_rows && p == 0));
    layer = phase.restarts ? 0 : phase.layer_end;
  }
  HEADROOM_CHECK(layer == shape.num_layers);
  HEADROOM_CHECK(plan.layers.size() == static_cast<size_t>(shape.num_layers));
  for (int32_t l = 0; l < shape.num_layers; ++l) {
    const LayerPlan& layer_plan = plan.layers[static_cast<size_t>(l)];
    HEADROOM_CHECK(layer_plan.keep_all ||
                   layer_plan.heads.size() == static_cast<size_t>(shape.num_kv_heads));
  }
}

void AddReasons(const KvPolicy& policy, const KvPolicySpec& spec, const KvModelShape& shape,
                const PromptInfo& prompt, PrefillPlan& plan) {
  if (policy.LeavesWhole(spec, prompt) || TspIsShort(spec, prompt.num_tokens)) {
    plan.reasons.push_back("short_prompt");
  }
  const bool layer_overran = std::any_of(plan.layers.begin(), plan.layers.end(),
                                         [](const LayerPlan& layer) { return layer.overran; });
  const bool rows_overran = std::any_of(plan.selections.begin(), plan.selections.end(),
                                        [](const TspPlan& rows) { return rows.overran; });
  // Where the protected rows are the whole prompt, no phase selects any.
  const bool whole_overran = plan.selections.empty() && TspApplies(spec, prompt.num_tokens) &&
                             policy.PlanTsp(spec, shape, prompt, /*phase=*/0).overran;
  if (layer_overran || rows_overran || whole_overran) {
    plan.reasons.push_back("floor");
  }
}

// Whether the rows of phase `p` come from those that the phase before kept aside.
bool ReadsStash(const PrefillPlan& plan, size_t p) { return p > 0 && !plan.phases[p - 1].restarts; }

// Whether what a layer pool holds together bounds it: heads that are tested may climb out of it.
bool IsPoolBound(const LayerPlan& layer) {
  return layer.pool == KvPool::kLayer &&
         std::none_of(layer.heads.begin(), layer.heads.end(),
                      [](const HeadPlan& head) { return head.check_target_ppm > 0; });
}

// The most slots that a head keeps of `num_slots`.
int32_t MostEntries(const HeadPlan& head, int32_t num_slots) {
  return head.check_target_ppm > 0 ? num_slots : head.num_entries;
}

// The most pages that heads which share a pool take together, each with `new_slots` more: all but
// one slot of a page may be empty in each.
int64_t PooledPages(const LayerPlan& layer, int64_t new_slots) {
  const auto num_heads = static_cast<int64_t>(layer.heads.size());
  const int64_t slots = layer.pool_entries + num_heads * (new_slots + kernels::kPageSize - 1);
  return slots / kernels::kPageSize;
}

// The fewest slots that one head of `layer` holds after prefill, as KeptSlots says the most.
int32_t LeastKeptSlots(const PrefillPlan& plan, int32_t layer, int32_t kv_head) {
  const LayerPlan& layer_plan = plan.layers[static_cast<size_t>(layer)];
  if (layer_plan.keep_all) {
    return plan.layer_slots[static_cast<size_t>(layer)];
  }
  const HeadPlan& head = layer_plan.heads[static_cast<size_t>(kv_head)];
  if (!head.rungs.empty()) {
    return 0;
  }
  return layer_plan.pool == KvPool::kLayer ? head.safe_entries : head.num_entries;
}

// Pages of each layer while a prefill runs.
class PageReplay {
 public:
  PageReplay(const PrefillPlan& plan, const KvModelShape& shape)
      : plan_(plan), heads_(shape.num_kv_heads), pages_(plan.layers.size(), 0) {}

  int64_t peak() const { return peak_; }

  void Run() {
    for (size_t p = 0; p < plan_.phases.size(); ++p) {
      RunPhase(plan_.phases[p], ReadsStash(plan_, p), plan_.phase_rows[p]);
    }
  }

 private:
  void Set(int32_t layer, int64_t pages) {
    int64_t& held = pages_[static_cast<size_t>(layer)];
    held_ += pages - held;
    held = pages;
    peak_ = std::max(peak_, held_);
  }

  void RunPhase(const PrefillPhase& phase, bool from_stash, int32_t rows) {
    // The first layer of a phase that reads a stash holds every row of the phase before it already.
    const int32_t first = from_stash ? phase.layer_begin + 1 : phase.layer_begin;
    const int32_t last = phase.selects_rows ? phase.layer_end : phase.layer_end - 1;
    for (int32_t layer = first; layer <= last; ++layer) {
      Set(layer, heads_ * PagesOf(rows - 1));
    }
    for (int32_t layer = phase.layer_begin; layer <= last; ++layer) {
      if (layer >= first) {
        Set(layer, heads_ * PagesOf(rows));
      }
      if (phase.restarts) {
        Set(layer, 0);
      } else if (layer < phase.layer_end) {
        Compact(layer);
      }
    }
  }

  void Compact(int32_t layer) {
    const LayerPlan& layer_plan = plan_.layers[static_cast<size_t>(layer)];
    if (layer_plan.keep_all) {
      return;
    }
    const int32_t slots = plan_.layer_slots[static_cast<size_t>(layer)];
    int64_t fresh = 0;
    int64_t after = 0;
    for (const HeadPlan& head : layer_plan.heads) {
      // A head that keeps everything is not copied; where scores decide, it may keep all but one.
      const int32_t sure = layer_plan.pool == KvPool::kLayer ? head.safe_entries : head.num_entries;
      const int32_t most = MostEntries(head, slots);
      const int32_t moved = sure == slots && head.rungs.empty() ? 0 : most;
      fresh += PagesOf(std::min(moved, slots - 1));
      after += PagesOf(most);
    }
    if (IsPoolBound(layer_plan)) {
      const int64_t most = PooledPages(layer_plan, 0);
      fresh = std::min(fresh, most);
      after = std::min(after, most);
    }
    Set(layer, pages_[static_cast<size_t>(layer)] + fresh);
    Set(layer, after);
  }

  const PrefillPlan& plan_;
  const int64_t heads_;
  std::vector<int64_t> pages_;  // [num_layers]
  int64_t held_ = 0;
  int64_t peak_ = 0;
};

// The most slots that a head ever holds while `new_slots` are decoded.
int64_t LongestDecode(const DecodePlan& plan, int64_t kept, int64_t new_slots) {
  const int64_t grown = kept + new_slots;
  if (!plan.evicts()) {
    return grown;
  }
  // Eviction never shortens a head below what it was given: it starts at the bound.
  return std::min(grown, std::max<int64_t>(kept, plan.capacity_slots + kernels::kPageSize));
}

}  // namespace

PrefillPlan MakePrefillPlan(const KvPolicy& policy, const KvPolicySpec& spec,
                            const KvModelShape& shape, const PromptInfo& prompt) {
  HEADROOM_CHECK(prompt.num_tokens >= 1);
  PrefillPlan plan;
  plan.phases = policy.PlanPhases(spec, shape, prompt);
  plan.needs = policy.Needs(spec, shape, prompt);
  plan.needs.window_rows = std::min(plan.needs.window_rows, prompt.num_tokens);
  int32_t rows = prompt.num_tokens;
  for (size_t p = 0; p < plan.phases.size(); ++p) {
    plan.phase_rows.push_back(rows);
    if (plan.phases[p].selects_rows) {
      plan.selections.push_back(policy.PlanTsp(spec, shape, prompt, static_cast<int32_t>(p)));
      HEADROOM_CHECK(plan.selections.back().num_rows >= 1 &&
                     plan.selections.back().num_rows <= rows);
      rows = plan.selections.back().num_rows;
    }
  }
  auto phase = static_cast<size_t>(FirstKeptPhase(plan));
  for (int32_t layer = 0; layer < shape.num_layers; ++layer) {
    // The layer that selects rows still stores K and V of every row that enters it.
    while (layer > plan.phases[phase].layer_end ||
           (layer == plan.phases[phase].layer_end && !plan.phases[phase].selects_rows)) {
      ++phase;
    }
    plan.layer_phases.push_back(static_cast<int32_t>(phase));
    plan.layer_slots.push_back(plan.phase_rows[phase]);
  }
  plan.layers = policy.PlanLayers(spec, shape, prompt, plan.layer_slots);
  CheckPlan(plan, shape);
  plan.retention_ppm = AppliedRetentionPpm(spec, prompt.num_tokens);
  plan.tsp_ppm = AppliedTspPpm(spec, prompt.num_tokens);
  AddReasons(policy, spec, shape, prompt, plan);
  return plan;
}

int32_t FirstKeptPhase(const PrefillPlan& plan) {
  int32_t first = 0;
  for (size_t p = 0; p < plan.phases.size(); ++p) {
    if (plan.phases[p].restarts) {
      first = static_cast<int32_t>(p) + 1;
    }
  }
  return first;
}

int32_t KeptSlots(const PrefillPlan& plan, int32_t layer, int32_t kv_head) {
  const LayerPlan& layer_plan = plan.layers[static_cast<size_t>(layer)];
  const int32_t num_slots = plan.layer_slots[static_cast<size_t>(layer)];
  return layer_plan.keep_all
             ? num_slots
             : MostEntries(layer_plan.heads[static_cast<size_t>(kv_head)], num_slots);
}

int64_t PrefillPeakPages(const PrefillPlan& plan, const KvModelShape& shape) {
  PageReplay replay(plan, shape);
  replay.Run();
  return replay.peak();
}

int64_t DecodePages(const DecodePlan& plan, int64_t kept, int64_t new_slots) {
  return PagesOf(LongestDecode(plan, kept, new_slots));
}

int64_t SharedPages(const DecodePlan& plan, int64_t kept, int64_t new_slots) {
  const bool evicts = plan.evicts() && LongestDecode(plan, kept, new_slots) < kept + new_slots;
  return evicts ? 0 : kept / kernels::kPageSize;
}

int64_t DecodePages(const PrefillPlan& plan, const KvModelShape& shape,
                    std::span<const DecodePlan> decode, int64_t new_slots) {
  int64_t pages = 0;
  size_t index = 0;
  for (int32_t layer = 0; layer < shape.num_layers; ++layer) {
    int64_t of_layer = 0;
    for (int32_t head = 0; head < shape.num_kv_heads; ++head, ++index) {
      of_layer += DecodePages(decode[index], KeptSlots(plan, layer, head), new_slots);
    }
    const LayerPlan& layer_plan = plan.layers[static_cast<size_t>(layer)];
    pages +=
        IsPoolBound(layer_plan) ? std::min(of_layer, PooledPages(layer_plan, new_slots)) : of_layer;
  }
  return pages;
}

std::vector<DecodePlan> MakeDecodePlans(const KvPolicy& policy, const KvPolicySpec& spec,
                                        const KvModelShape& shape, const PromptInfo& prompt) {
  std::vector<DecodePlan> plans;
  for (int32_t layer = 0; layer < shape.num_layers; ++layer) {
    for (int32_t head = 0; head < shape.num_kv_heads; ++head) {
      plans.push_back(policy.PlanDecode(spec, shape, prompt, layer, head));
    }
  }
  return plans;
}

KvFootprint ReplayFootprint(const KvPolicy& policy, const KvPolicySpec& spec,
                            const KvModelShape& shape, const PromptInfo& prompt,
                            int32_t max_new_tokens) {
  const PrefillPlan plan = MakePrefillPlan(policy, spec, shape, prompt);
  const std::vector<DecodePlan> decode = MakeDecodePlans(policy, spec, shape, prompt);
  KvFootprint footprint;
  footprint.prefill_peak_pages =
      std::max(PrefillPeakPages(plan, shape), DecodePages(plan, shape, decode, 1));
  footprint.steady_pages = DecodePages(plan, shape, decode, max_new_tokens);
  size_t index = 0;
  for (int32_t layer = 0; layer < shape.num_layers; ++layer) {
    for (int32_t head = 0; head < shape.num_kv_heads; ++head, ++index) {
      footprint.shared_pages +=
          SharedPages(decode[index], LeastKeptSlots(plan, layer, head), max_new_tokens);
    }
  }
  return footprint;
}

std::vector<LayerPlan> KvPolicy::PlanLayers(const KvPolicySpec& spec, const KvModelShape& shape,
                                            const PromptInfo& prompt,
                                            const std::vector<int32_t>& layer_slots) const {
  std::vector<LayerPlan> plans;
  for (int32_t layer = 0; layer < shape.num_layers; ++layer) {
    plans.push_back(
        PlanPrefill(spec, shape, prompt, layer, layer_slots[static_cast<size_t>(layer)]));
  }
  return plans;
}

KvFootprint KvPolicy::Footprint(const KvPolicySpec& spec, const KvModelShape& shape,
                                const PromptInfo& prompt, int32_t max_new_tokens) const {
  return ReplayFootprint(*this, spec, shape, prompt, max_new_tokens);
}

}  // namespace headroom::engine
