// fastkv: token-selective propagation above layer T, and in every layer the same number of entries
// per KV head, chosen by window scores [FastKV, 2502.01068 v3; dongwonjo/FastKV:baselines/fastkv].
//
// Deviations from the published code, at its proportional budgets:
// - counts are exact integers. Above layer T a head keeps min(floor(rho * N), N_l) of the N_l rows
//   that it sees; the code keeps int(N_l * r / t);
// - the window is kv_window content rows and what follows them (code: the last 8 raw rows);
//   kv_window_raw gives theirs;
// - sinks are protected in every layer and among the rows that go on; kv_sink_tokens 0 gives the
//   paper's sets;
// - sinks and window are the floor of both budgets; the code fails where a budget is below its
//   window;
// - prompts below kv_min_prompt keep everything, prompts below tsp_min_prompt run whole (code: no
//   thresholds), each on its own: rows are dropped also where no entry is (in the code's constant
//   mode a prompt that fits the KV cap is not cut either);
// - softmax scores stay f32; the code casts them to fp16 before it sums;
// - ties go to the unpooled score and then to the lower position (code: the order of torch.topk);
// - layer T's attention and MLP run for the rows that go on alone, which are known before; the code
//   runs all rows and then gathers: the same result for those rows. Layer T's own entries are
//   chosen of all rows, as in the code;
// - kept slots stay in order of position (code: by score, the window last), and a ratio of 1 is the
//   full path.
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
