// adakv: the KV heads of a layer share one pool: each first gets a safe part by its own window
// scores, then the best (head, slot) pairs of all heads fill the pool [AdaKV, 2407.11550].
//
// Deviations from the paper and its code (FFY0/AdaKV):
// - the safe part is max(1, floor(alpha * b)) of the head's even share b, in exact integers, and
//   the window and sinks count among it (as in NVIDIA/kvpress); the code mixes the greedy and the
//   even capacity after the fact and rounds, so that its pools drift by a few slots;
// - heads are KV heads: scores are summed over the group (code: mean or max);
// - softmax sums over the window's rows, not means: the same order;
// - every layer takes part (code: the first may be skipped);
// - window, pooling, budget and its floor, sinks, ties as in snapkv; between heads ties go to the
//   lower head.
#include <algorithm>

#include "engine/kv/policies/policies.h"
#include "engine/kv/policies/policy_util.h"

namespace headroom::engine {
namespace {

class AdaKvPolicy final : public KvPolicy {
 public:
  std::string name() const override { return "adakv"; }

  Status Validate(const KvPolicySpec& spec) const override {
    HEADROOM_RETURN_IF_ERROR(ValidateRanges(spec));
    HEADROOM_RETURN_IF_ERROR(RefuseTsp(name(), spec));
    return RefuseTypedDecode(name(), spec);
  }

  std::vector<std::string> OptionNames() const override { return {"alpha"}; }

  ScoreNeeds Needs(const KvPolicySpec& spec, const KvModelShape& shape,
                   const PromptInfo& prompt) const override {
    return WindowNeeds(RetentionApplies(spec, prompt.num_tokens) ? WindowRows(spec, prompt) : 0);
  }

  LayerPlan PlanPrefill(const KvPolicySpec& spec, const KvModelShape& shape,
                        const PromptInfo& prompt, int32_t layer, int32_t num_slots) const override {
    LayerPlan plan = UniformWindowPlan(spec, shape, prompt, num_slots);
    if (plan.keep_all) {
      return plan;
    }
    const int64_t even = std::min<int64_t>(RetentionEntries(spec, prompt.num_tokens), num_slots);
    const int64_t safe = std::max<int64_t>(1, ScalePpm(spec.options.alpha_ppm, even));
    plan.pool = KvPool::kLayer;
    plan.pool_entries = plan.heads.front().num_entries * shape.num_kv_heads;
    for (HeadPlan& head : plan.heads) {
      head.safe_entries = static_cast<int32_t>(safe);
      head.num_entries = num_slots;
    }
    return plan;
  }
};

}  // namespace

std::unique_ptr<KvPolicy> MakeAdaKvPolicy() { return std::make_unique<AdaKvPolicy>(); }

}  // namespace headroom::engine
