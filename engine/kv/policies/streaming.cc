// streaming: attention sinks and the most recent tokens [StreamingLLM, 2309.17453].
//
// Deviations from the paper and its code (mit-han-lab/streaming-llm:streaming_llm/kv_cache.py):
// - keys keep the angles of their original positions, and decode goes on at the true one; the code
//   stores keys without RoPE and rotates them by their place inside the cache;
// - the prompt is read whole and evicted once, at its end; the paper evicts while it reads. With
//   kv_decode grow nothing goes after that;
// - the size is a share of the prompt in exact integers, sinks among it, not a fixed count;
// - sinks and the rows of the observation window (kv_window and what follows them) are its floor;
// - typed decode lets every head grow by a page, then drops its oldest page behind the sinks at
//   once, where the paper drops one token a step;
// - prompts below kv_min_prompt are left whole, and then grow.
#include <algorithm>

#include "engine/kv/policies/policies.h"
#include "engine/kv/policies/policy_util.h"

namespace headroom::engine {
namespace {

class StreamingPolicy final : public KvPolicy {
 public:
  std::string name() const override { return "streaming"; }
  KvDecode default_decode() const override { return KvDecode::kTyped; }

  Status Validate(const KvPolicySpec& spec) const override {
    HEADROOM_RETURN_IF_ERROR(ValidateRanges(spec));
    return RefuseTsp(name(), spec);
  }

  ScoreNeeds Needs(const KvPolicySpec& spec, const KvModelShape& shape,
                   const PromptInfo& prompt) const override {
    return {};  // nothing is scored; the window only sets how many recent tokens a floor keeps
  }

  LayerPlan PlanPrefill(const KvPolicySpec& spec, const KvModelShape& shape,
                        const PromptInfo& prompt, int32_t layer, int32_t num_slots) const override {
    LayerPlan plan;
    if (!RetentionApplies(spec, prompt.num_tokens)) {
      return plan;
    }
    const HeadBudget budget = UniformHeadBudget(spec, prompt, num_slots);
    plan.overran = budget.overran;
    plan.keep_all = budget.num_entries == num_slots;
    if (!plan.keep_all) {
      const HeadPlan head = {.num_entries = budget.num_entries,
                             .sink_slots = budget.sink_slots,
                             .recent_slots = budget.num_entries - budget.sink_slots,
                             .score = ScoreKind::kNone};
      plan.heads.assign(static_cast<size_t>(shape.num_kv_heads), head);
    }
    return plan;
  }

  DecodePlan PlanDecode(const KvPolicySpec& spec, const KvModelShape& shape,
                        const PromptInfo& prompt, int32_t layer, int32_t kv_head) const override {
    DecodePlan plan;
    // A prompt that was left whole puts no bound on decode either.
    if (spec.decode == KvDecode::kGrow || !RetentionApplies(spec, prompt.num_tokens)) {
      return plan;
    }
    const HeadBudget budget = UniformHeadBudget(spec, prompt, prompt.num_tokens);
    plan.kind = DecodeKind::kRing;
    plan.sink_slots = budget.sink_slots;
    plan.capacity_slots = budget.num_entries;
    return plan;
  }
};

}  // namespace

std::unique_ptr<KvPolicy> MakeStreamingPolicy() { return std::make_unique<StreamingPolicy>(); }

}  // namespace headroom::engine
