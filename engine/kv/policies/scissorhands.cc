// scissorhands: pivotal tokens, counted by how many of the last 400 rows gave a column at least the
// mean of what they see, and the 10 most recent tokens [Scissorhands, 2305.17118].
//
// Deviations from the paper:
// - the prompt is evicted once, at its end, by the counts of its last 400 rows; the paper evicts
//   whenever its buffer is full, half of it at a time, and later rows no longer see what went;
// - a head's count is the sum over the query heads of its group, a query head's p >= 1 / keys
//   counts one;
// - the budget is a share of the prompt in exact integers, with sinks and the recent tokens as its
//   floor; prompts below kv_min_prompt are left whole, and then grow;
// - every layer has the same budget (the paper gives later layers more);
// - sinks are protected, kv_sink_tokens 0 gives the paper's sets; ties go to the lower position;
// - typed decode counts in blocks of 16 rows, of which the last 25 are looked at, and drops a page
//   of the lowest at once; how the prompt's counts are spread over its rows is not kept: they fade
//   evenly as its rows leave the last 400.
#include <algorithm>

#include "engine/kv/policies/policies.h"
#include "engine/kv/policies/policy_util.h"

namespace headroom::engine {
namespace {

constexpr int32_t kHistoryRows = 400;
constexpr int32_t kRecentTokens = 10;

class ScissorhandsPolicy final : public KvPolicy {
 public:
  std::string name() const override { return "scissorhands"; }

  Status Validate(const KvPolicySpec& spec) const override {
    HEADROOM_RETURN_IF_ERROR(ValidateRanges(spec));
    return RefuseTsp(name(), spec);
  }

  ScoreNeeds Needs(const KvPolicySpec& spec, const KvModelShape& shape,
                   const PromptInfo& prompt) const override {
    ScoreNeeds needs;
    if (RetentionApplies(spec, prompt.num_tokens)) {
      needs.columns = {{.last_rows = std::min(kHistoryRows, prompt.num_tokens),
                        .kind = kernels::ColumnKind::kAboveMean}};
    }
    return needs;
  }

  LayerPlan PlanPrefill(const KvPolicySpec& spec, const KvModelShape& shape,
                        const PromptInfo& prompt, int32_t layer, int32_t num_slots) const override {
    if (!RetentionApplies(spec, prompt.num_tokens)) {
      return {};
    }
    return HeavyHitterPlan(shape,
                           {.entries = RetentionEntries(spec, prompt.num_tokens),
                            .sinks = SinkRows(spec, prompt),
                            .recent = std::min(kRecentTokens, num_slots)},
                           ScoreKind::kColumnSum, num_slots);
  }

  DecodePlan PlanDecode(const KvPolicySpec& spec, const KvModelShape& shape,
                        const PromptInfo& prompt, int32_t layer, int32_t kv_head) const override {
    if (spec.decode == KvDecode::kGrow) {
      return {};
    }
    return LowestScoreDecode(PlanPrefill(spec, shape, prompt, layer, prompt.num_tokens), kv_head,
                             DecodeScore::kRecentCount);
  }
};

}  // namespace

std::unique_ptr<KvPolicy> MakeScissorhandsPolicy() {
  return std::make_unique<ScissorhandsPolicy>();
}

}  // namespace headroom::engine
