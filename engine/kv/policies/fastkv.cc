// fastkv: token-selective propagation above layer T, and in every layer the same number of entries
// per KV head, chosen by window scores [FastKV, 2502.01068 v3; dongwonjo/FastKV:baselines/fastkv].
//
// Unlike the published code: exact integer budgets, sinks, kept slots ascending, and an identity
// path when nothing is to be dropped.
#include "engine/kv/policies/policies.h"
#include "engine/kv/policies/policy_util.h"

namespace headroom::engine {
namespace {

class FastKvPolicy final : public KvPolicy {
 public:
  std::string name() const override { return "fastkv"; }

  Status Validate(const KvPolicySpec& spec) const override {
    HEADROOM_RETURN_IF_ERROR(ValidateRanges(spec));
    return RefuseTypedDecode(name(), spec);
  }

  ScoreNeeds Needs(const KvPolicySpec& spec, const KvModelShape& shape,
                   const PromptInfo& prompt) const override {
    const bool scores =
        RetentionApplies(spec, prompt.num_tokens) || TspApplies(spec, prompt.num_tokens);
    return WindowNeeds(scores ? WindowRows(spec, prompt) : 0);
  }

  std::vector<PrefillPhase> PlanPhases(const KvPolicySpec& spec, const KvModelShape& shape,
                                       const PromptInfo& prompt) const override {
    return TspPhases(spec, shape, prompt);
  }

  LayerPlan PlanPrefill(const KvPolicySpec& spec, const KvModelShape& shape,
                        const PromptInfo& prompt, int32_t layer, int32_t num_slots) const override {
    return UniformWindowPlan(spec, shape, prompt, num_slots);
  }

  TspPlan PlanTsp(const KvPolicySpec& spec, const KvModelShape& shape, const PromptInfo& prompt,
                  int32_t phase) const override {
    return PlanTspRows(spec, prompt);
  }
};

}  // namespace

std::unique_ptr<KvPolicy> MakeFastKvPolicy() { return std::make_unique<FastKvPolicy>(); }

}  // namespace headroom::engine
