// snapkv: in every layer the same number of entries per KV head, the best by the scores of the
// observation window [SnapKV, 2404.14469].
//
// Deviations from the paper and its code (FasterDecoding/SnapKV:snapkv_utils.py):
// - one kept set per KV head, from scores summed over its query heads after pooling; the code
//   selects per query head and stores as many copies of K and V;
// - the window is kv_window content rows and what follows them (8 by default; code: the last 16 to
//   64 raw rows), pooling is max of width 7 by default (paper: 5 to 13, code: avg 5);
//   kv_window_raw, kv_pool and kv_pool_width give theirs;
// - the budget is a share of the prompt in exact integers, not a fixed capacity, with sinks and
//   window as its floor; prompts below kv_min_prompt are left whole;
// - sinks are protected, kv_sink_tokens 0 gives the paper's sets;
// - softmax scores stay f32, ties go to the unpooled score and then to the lower position, kept
//   slots stay in order of position.
#include "engine/kv/policies/policies.h"
#include "engine/kv/policies/policy_util.h"

namespace headroom::engine {
namespace {

class SnapKvPolicy final : public KvPolicy {
 public:
  std::string name() const override { return "snapkv"; }

  Status Validate(const KvPolicySpec& spec) const override {
    HEADROOM_RETURN_IF_ERROR(ValidateRanges(spec));
    HEADROOM_RETURN_IF_ERROR(RefuseTsp(name(), spec));
    return RefuseTypedDecode(name(), spec);
  }

  ScoreNeeds Needs(const KvPolicySpec& spec, const KvModelShape& shape,
                   const PromptInfo& prompt) const override {
    return WindowNeeds(RetentionApplies(spec, prompt.num_tokens) ? WindowRows(spec, prompt) : 0);
  }

  LayerPlan PlanPrefill(const KvPolicySpec& spec, const KvModelShape& shape,
                        const PromptInfo& prompt, int32_t layer, int32_t num_slots) const override {
    return UniformWindowPlan(spec, shape, prompt, num_slots);
  }
};

}  // namespace

std::unique_ptr<KvPolicy> MakeSnapKvPolicy() { return std::make_unique<SnapKvPolicy>(); }

}  // namespace headroom::engine
