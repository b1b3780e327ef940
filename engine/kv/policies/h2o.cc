// h2o: half of the budget for the most recent tokens, half for the heavy hitters: the columns to
// which all rows of the prompt gave most [H2O, 2306.14048].
//
// Deviations from the paper and its code (FMInference/H2O):
// - the prompt is evicted once, at its end, by the sums over all of its rows; the paper evicts
//   while it reads, so that its later rows do not see what was evicted before;
// - the budget is a share of the prompt in exact integers, the recent tokens a share of that; the
//   code has a ratio of the prompt for each half;
// - sums are causal by construction; `count_normalised` divides each by the rows that see the
//   column (kvpress' ObservedAttention);
// - one kept set per KV head, from sums over its query heads;
// - sinks are protected, out of the heavy hitters' half; kv_sink_tokens 0 gives the paper's sets.
//   `recent_share` sets the halves. Sinks and recent tokens are the floor of the budget;
// - sums are whole numbers of 2^-40: they depend on no order. Ties go to the lower position;
// - prompts below kv_min_prompt are left whole, and then grow;
// - typed decode adds every new row's attention and drops a page of the lowest at once, where the
//   paper drops one token a step.
#include <algorithm>

#include "engine/kv/policies/policies.h"
#include "engine/kv/policies/policy_util.h"

namespace headroom::engine {
namespace {

class H2oPolicy final : public KvPolicy {
 public:
  std::string name() const override { return "h2o"; }

  Status Validate(const KvPolicySpec& spec) const override {
    HEADROOM_RETURN_IF_ERROR(ValidateRanges(spec));
    return RefuseTsp(name(), spec);
  }

  std::vector<std::string> OptionNames() const override {
    return {"recent_share", "count_normalised"};
  }

  ScoreNeeds Needs(const KvPolicySpec& spec, const KvModelShape& shape,
                   const PromptInfo& prompt) const override {
    ScoreNeeds needs;
    if (RetentionApplies(spec, prompt.num_tokens)) {
      needs.columns = {{.last_rows = prompt.num_tokens}};
    }
    return needs;
  }

  LayerPlan PlanPrefill(const KvPolicySpec& spec, const KvModelShape& shape,
                        const PromptInfo& prompt, int32_t layer, int32_t num_slots) const override {
    if (!RetentionApplies(spec, prompt.num_tokens)) {
      return {};
    }
    const int64_t budget = RetentionEntries(spec, prompt.num_tokens);
    const int32_t sinks = SinkRows(spec, prompt);
    const auto recent = static_cast<int32_t>(ScalePpm(spec.options.recent_share_ppm, budget));
    const ScoreKind score =
        spec.options.count_normalised ? ScoreKind::kColumnMean : ScoreKind::kColumnSum;
    return HeavyHitterPlan(shape, {.entries = budget, .sinks = sinks, .recent = recent}, score,
                           num_slots);
  }

  DecodePlan PlanDecode(const KvPolicySpec& spec, const KvModelShape& shape,
                        const PromptInfo& prompt, int32_t layer, int32_t kv_head) const override {
    if (spec.decode == KvDecode::kGrow) {
      return {};
    }
    const DecodeScore score =
        spec.options.count_normalised ? DecodeScore::kMean : DecodeScore::kSum;
    return LowestScoreDecode(PlanPrefill(spec, shape, prompt, layer, prompt.num_tokens), kv_head,
                             score);
  }
};

}  // namespace

std::unique_ptr<KvPolicy> MakeH2oPolicy() { return std::make_unique<H2oPolicy>(); }

}  // namespace headroom::engine
