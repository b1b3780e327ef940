#include "engine/kv/prefill_plan.h"

#include <algorithm>

#include "base/check.h"

namespace headroom::engine {
namespace {

int64_t PagesOf(int64_t num_slots) {
  return (num_slots + kernels::kPageSize - 1) / kernels::kPageSize;
}

int64_t AppliedPpm(bool applies, int64_t count, int64_t ppm, int64_t num_tokens) {
  if (!applies) {
    return kPpm;
  }
  return count < ScalePpm(ppm, num_tokens) ? count * kPpm / num_tokens : ppm;
}

void CheckPlan(const PrefillPlan& plan, const KvModelShape& shape) {
  HEADROOM_CHECK(!plan.phases.empty());
  int32_t layer = 0;
  for (size_t p = 0; p < plan.phases.size(); ++p) {
    HEADROOM_CHECK(plan.phases[p].layer_begin == layer);
    layer = plan.phases[p].layer_end;
    HEADROOM_CHECK(plan.phases[p].selects_rows == (p + 1 < plan.phases.size()));
  }
  HEADROOM_CHECK(layer == shape.num_layers);
  for (int32_t l = 0; l < shape.num_layers; ++l) {
    const LayerPlan& layer_plan = plan.layers[static_cast<size_t>(l)];
    HEADROOM_CHECK(layer_plan.keep_all ||
                   layer_plan.heads.size() == static_cast<size_t>(shape.num_kv_heads));
  }
}

void AddReasons(const KvPolicySpec& spec, const PromptInfo& prompt, PrefillPlan& plan) {
  if (RetentionIsShort(spec, prompt.num_tokens) || TspIsShort(spec, prompt.num_tokens)) {
    plan.reasons.push_back("short_prompt");
  }
  const bool layer_overran = std::any_of(plan.layers.begin(), plan.layers.end(),
                                         [](const LayerPlan& layer) { return layer.overran; });
  if (layer_overran || plan.tsp.overran) {
    plan.reasons.push_back("floor");
  }
}

// Pages of each layer while a prefill runs.
class PageReplay {
 public:
  PageReplay(const PrefillPlan& plan, const KvModelShape& shape)
      : plan_(plan), heads_(shape.num_kv_heads), pages_(plan.layers.size(), 0) {}

  int64_t peak() const { return peak_; }

  void Run() {
    for (size_t p = 0; p < plan_.phases.size(); ++p) {
      RunPhase(plan_.phases[p], p > 0, plan_.phase_rows[p]);
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
    // The first layer of a later phase holds every row of the phase before it already.
    const int32_t first = from_stash ? phase.layer_begin + 1 : phase.layer_begin;
    const int32_t last = phase.selects_rows ? phase.layer_end : phase.layer_end - 1;
    for (int32_t layer = first; layer <= last; ++layer) {
      Set(layer, heads_ * PagesOf(rows - 1));
    }
    for (int32_t layer = phase.layer_begin; layer <= last; ++layer) {
      if (layer >= first) {
        Set(layer, heads_ * PagesOf(rows));
      }
      if (layer < phase.layer_end) {
        Compact(layer);
      }
    }
  }

  void Compact(int32_t layer) {
    const int32_t slots = plan_.layer_slots[static_cast<size_t>(layer)];
    int64_t fresh = 0;
    int64_t old = 0;
    for (int32_t head = 0; head < heads_; ++head) {
      const int32_t kept = KeptSlots(plan_, layer, head);
      if (kept < slots) {
        fresh += PagesOf(kept);
        old += PagesOf(slots);
      }
    }
    const int64_t before = pages_[static_cast<size_t>(layer)];
    Set(layer, before + fresh);
    Set(layer, before + fresh - old);
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
  if (!plan.evicts) {
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
  plan.window_rows = std::min(policy.NumWindowRows(spec, prompt), prompt.num_tokens);
  int32_t rows = prompt.num_tokens;
  for (const PrefillPhase& phase : plan.phases) {
    plan.phase_rows.push_back(rows);
    if (phase.selects_rows) {
      plan.tsp = policy.PlanTsp(spec, shape, prompt);
      HEADROOM_CHECK(plan.tsp.num_rows >= 1 && plan.tsp.num_rows <= rows);
      rows = plan.tsp.num_rows;
    }
  }
  for (int32_t layer = 0; layer < shape.num_layers; ++layer) {
    // The layer that selects rows still stores K and V of every row that enters it.
    size_t phase = 0;
    while (layer > plan.phases[phase].layer_end ||
           (layer == plan.phases[phase].layer_end && !plan.phases[phase].selects_rows)) {
      ++phase;
    }
    plan.layer_slots.push_back(plan.phase_rows[phase]);
    plan.layers.push_back(policy.PlanPrefill(spec, shape, prompt, layer, plan.phase_rows[phase]));
  }
  CheckPlan(plan, shape);
  plan.retention_ppm =
      AppliedPpm(RetentionApplies(spec, prompt.num_tokens),
                 RetentionEntries(spec, prompt.num_tokens), spec.retention_ppm, prompt.num_tokens);
  plan.tsp_ppm = AppliedPpm(TspApplies(spec, prompt.num_tokens), TspRows(spec, prompt.num_tokens),
                            spec.tsp_ppm, prompt.num_tokens);
  AddReasons(spec, prompt, plan);
  return plan;
}

int32_t KeptSlots(const PrefillPlan& plan, int32_t layer, int32_t kv_head) {
  const LayerPlan& layer_plan = plan.layers[static_cast<size_t>(layer)];
  return layer_plan.keep_all ? plan.layer_slots[static_cast<size_t>(layer)]
                             : layer_plan.heads[static_cast<size_t>(kv_head)].num_entries;
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
  const bool evicts = plan.evicts && LongestDecode(plan, kept, new_slots) < kept + new_slots;
  return evicts ? 0 : kept / kernels::kPageSize;
}

int64_t DecodePages(const PrefillPlan& plan, const KvModelShape& shape,
                    std::span<const DecodePlan> decode, int64_t new_slots) {
  int64_t pages = 0;
  size_t index = 0;
  for (int32_t layer = 0; layer < shape.num_layers; ++layer) {
    for (int32_t head = 0; head < shape.num_kv_heads; ++head, ++index) {
      pages += DecodePages(decode[index], KeptSlots(plan, layer, head), new_slots);
    }
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
          SharedPages(decode[index], KeptSlots(plan, layer, head), max_new_tokens);
    }
  }
  return footprint;
}

KvFootprint KvPolicy::Footprint(const KvPolicySpec& spec, const KvModelShape& shape,
                                const PromptInfo& prompt, int32_t max_new_tokens) const {
  return ReplayFootprint(*this, spec, shape, prompt, max_new_tokens);
}

}  // namespace headroom::engine
