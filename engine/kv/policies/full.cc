// full: keeps everything. With tau < 1 it is TSP alone, kv-policies' "TSP only".
#include "engine/kv/policies/policies.h"
#include "engine/kv/policies/policy_util.h"

namespace headroom::engine {
namespace {

class FullPolicy final : public KvPolicy {
 public:
  std::string name() const override { return "full"; }

  Status Validate(const KvPolicySpec& spec) const override {
    HEADROOM_RETURN_IF_ERROR(ValidateRanges(spec));
    HEADROOM_RETURN_IF_ERROR(RefuseRetention(name(), spec));
    return RefuseTypedDecode(name(), spec);
  }

  ScoreNeeds Needs(const KvPolicySpec& spec, const KvModelShape& shape,
                   const PromptInfo& prompt) const override {
    return WindowNeeds(TspApplies(spec, prompt.num_tokens) ? WindowRows(spec, prompt) : 0);
  }

  std::vector<PrefillPhase> PlanPhases(const KvPolicySpec& spec, const KvModelShape& shape,
                                       const PromptInfo& prompt) const override {
    return TspPhases(spec, shape, prompt);
  }

  LayerPlan PlanPrefill(const KvPolicySpec& spec, const KvModelShape& shape,
                        const PromptInfo& prompt, int32_t layer, int32_t num_slots) const override {
    return {};
  }

  TspPlan PlanTsp(const KvPolicySpec& spec, const KvModelShape& shape, const PromptInfo& prompt,
                  int32_t phase) const override {
    return PlanTspRows(spec, prompt);
  }
};

}  // namespace

std::unique_ptr<KvPolicy> MakeFullPolicy() { return std::make_unique<FullPolicy>(); }

}  // namespace headroom::engine
