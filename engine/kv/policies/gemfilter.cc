// gemfilter: the scores of one middle layer choose floor(rho * N) tokens, and the model then reads
// these alone, as a fresh prompt at positions 0..k-1 [GemFilter, 2409.17422].
//
// The scores are the scaled dot products of the last row's queries with all keys at the filter
// layer f, pooled and summed over all heads. What layers 0..f held goes back before the second
// reading; decode continues at position k.
//
// Deviations from the paper and its code (SalesforceAIResearch/GemFilter):
// - f is max(0, floor(L / 2) - 3) by default (paper: 13 of 32 layers, the same; 17 and 19 for
//   others); kv_options.filter_layer sets it;
// - layer f itself only projects K, V and queries in the first reading: its attention decides
//   nothing;
// - k is a share of the prompt in exact integers (code: a fixed count); prompts below kv_min_prompt
//   are read once and left whole;
// - sinks and window rows are always chosen (code: the last row may go), so that a chat template
//   stays whole, and more than k where they alone are; kv_sink_tokens 0 and kv_window_raw 1 leave
//   only the last row;
// - pooling is max of width 7 by default (code: avg 5), over all columns but the last row's, of
//   each query head before the sum (code: after it; for avg the same);
// - ties go to the unpooled score and then to the lower position.
#include <algorithm>

#include "engine/kv/policies/policies.h"
#include "engine/kv/policies/policy_util.h"

namespace headroom::engine {
namespace {

constexpr int32_t kBelowMiddle = 3;

int32_t FilterLayer(const KvPolicySpec& spec, const KvModelShape& shape) {
  const int32_t named = spec.options.filter_layer;
  return named >= 0 ? named : std::max(0, shape.num_layers / 2 - kBelowMiddle);
}

class GemFilterPolicy final : public KvPolicy {
 public:
  std::string name() const override { return "gemfilter"; }

  Status Validate(const KvPolicySpec& spec) const override {
    HEADROOM_RETURN_IF_ERROR(ValidateRanges(spec));
    HEADROOM_RETURN_IF_ERROR(RefuseTsp(name(), spec));
    return RefuseTypedDecode(name(), spec);
  }

  Status ValidateShape(const KvPolicySpec& spec, const KvModelShape& shape) const override {
    if (spec.options.filter_layer >= shape.num_layers) {
      return InvalidArgument("kv_options.filter_layer: got {}, wanted 0 to {}",
                             spec.options.filter_layer, shape.num_layers - 1);
    }
    return OkStatus();
  }

  std::vector<std::string> OptionNames() const override { return {"filter_layer"}; }

  ScoreNeeds Needs(const KvPolicySpec& spec, const KvModelShape& shape,
                   const PromptInfo& prompt) const override {
    if (!Filters(spec, prompt)) {
      return {};
    }
    ScoreNeeds needs;
    needs.window_rows = 1;
    needs.window_kind = kernels::WindowScoreKind::kDot;
    return needs;
  }

  std::vector<PrefillPhase> PlanPhases(const KvPolicySpec& spec, const KvModelShape& shape,
                                       const PromptInfo& prompt) const override {
    if (!Filters(spec, prompt)) {
      return SinglePhase(shape);
    }
    return {{.layer_begin = 0,
             .layer_end = FilterLayer(spec, shape),
             .selects_rows = true,
             .restarts = true},
            {.layer_begin = 0, .layer_end = shape.num_layers}};
  }

  LayerPlan PlanPrefill(const KvPolicySpec& spec, const KvModelShape& shape,
                        const PromptInfo& prompt, int32_t layer, int32_t num_slots) const override {
    LayerPlan plan;  // keeps all of the chosen tokens
    plan.overran = RetentionApplies(spec, prompt.num_tokens) &&
                   UniformHeadBudget(spec, prompt, prompt.num_tokens).overran;
    return plan;
  }

  TspPlan PlanTsp(const KvPolicySpec& spec, const KvModelShape& shape, const PromptInfo& prompt,
                  int32_t phase) const override {
    const HeadBudget budget = UniformHeadBudget(spec, prompt, prompt.num_tokens);
    return {.num_rows = budget.num_entries,
            .sink_slots = budget.sink_slots,
            .recent_slots = budget.window_slots,
            .overran = budget.overran};
  }

 private:
  static bool Filters(const KvPolicySpec& spec, const PromptInfo& prompt) {
    return RetentionApplies(spec, prompt.num_tokens) &&
           UniformHeadBudget(spec, prompt, prompt.num_tokens).num_entries < prompt.num_tokens;
  }
};

}  // namespace

std::unique_ptr<KvPolicy> MakeGemFilterPolicy() { return std::make_unique<GemFilterPolicy>(); }

}  // namespace headroom::engine
