// random: sinks, window and a seeded random choice of the rest, another one in every layer and KV
// head. No method: the floor that others have to beat.
//
// Each kept set is drawn by selection sampling from Philox, keyed by (seed, layer, head): the same
// request keeps the same entries everywhere.
#include "base/philox.h"
#include "engine/kv/policies/policies.h"
#include "engine/kv/policies/policy_util.h"

namespace headroom::engine {
namespace {

class RandomPolicy final : public KvPolicy {
 public:
  std::string name() const override { return "random"; }

  Status Validate(const KvPolicySpec& spec) const override {
    HEADROOM_RETURN_IF_ERROR(ValidateRanges(spec));
    HEADROOM_RETURN_IF_ERROR(RefuseTsp(name(), spec));
    return RefuseTypedDecode(name(), spec);
  }

  std::vector<std::string> OptionNames() const override { return {"seed"}; }

  ScoreNeeds Needs(const KvPolicySpec& spec, const KvModelShape& shape,
                   const PromptInfo& prompt) const override {
    return {};
  }

  LayerPlan PlanPrefill(const KvPolicySpec& spec, const KvModelShape& shape,
                        const PromptInfo& prompt, int32_t layer, int32_t num_slots) const override {
    LayerPlan plan = UniformWindowPlan(spec, shape, prompt, num_slots);
    for (size_t head = 0; head < plan.heads.size(); ++head) {
      plan.heads[head].score = ScoreKind::kNone;
      plan.heads[head].keep_slots =
          Draw(spec.options.seed, layer, head, num_slots, plan.heads[head]);
    }
    return plan;
  }

 private:
  static std::vector<int32_t> Draw(uint64_t seed, int32_t layer, size_t head, int32_t num_slots,
                                   const HeadPlan& plan) {
    const Philox random(seed, static_cast<uint64_t>(layer) << 32 | head);
    std::vector<int32_t> slots;
    const int32_t end = num_slots - plan.recent_slots;
    int32_t left = plan.num_entries - plan.recent_slots - plan.sink_slots;
    for (int32_t slot = plan.sink_slots; slot < end && left > 0; ++slot) {
      if (random.Uniform(static_cast<uint64_t>(slot)) * (end - slot) < left) {
        slots.push_back(slot);
        --left;
      }
    }
    return slots;
  }
};

}  // namespace

std::unique_ptr<KvPolicy> MakeRandomPolicy() { return std::make_unique<RandomPolicy>(); }

}  // namespace headroom::engine
