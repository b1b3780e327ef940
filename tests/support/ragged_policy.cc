#include "tests/support/ragged_policy.h"

#include <algorithm>

#include "base/philox.h"
#include "engine/kv/policies/policy_util.h"

namespace headroom::testing {
namespace {

using engine::HeadPlan;
using engine::KvModelShape;
using engine::KvPolicySpec;
using engine::PromptInfo;

class RaggedPolicy final : public engine::KvPolicy {
 public:
  explicit RaggedPolicy(uint64_t seed) : seed_(seed) {}

  std::string name() const override { return "ragged"; }

  Status Validate(const KvPolicySpec& spec) const override { return engine::ValidateRanges(spec); }

  engine::ScoreNeeds Needs(const KvPolicySpec& spec, const KvModelShape& shape,
                           const PromptInfo& prompt) const override {
    const bool selects = engine::TspApplies(spec, prompt.num_tokens);
    return engine::WindowNeeds(selects ? engine::WindowRows(spec, prompt) : 0);
  }

  std::vector<engine::PrefillPhase> PlanPhases(const KvPolicySpec& spec, const KvModelShape& shape,
                                               const PromptInfo& prompt) const override {
    return engine::TspPhases(spec, shape, prompt);
  }

  engine::LayerPlan PlanPrefill(const KvPolicySpec& spec, const KvModelShape& shape,
                                const PromptInfo& prompt, int32_t layer,
                                int32_t num_slots) const override {
    engine::LayerPlan plan;
    plan.keep_all = false;
    for (int32_t head = 0; head < shape.num_kv_heads; ++head) {
      plan.heads.push_back(PlanHead(prompt, layer, head, num_slots));
    }
    return plan;
  }

  engine::TspPlan PlanTsp(const KvPolicySpec& spec, const KvModelShape& shape,
                          const PromptInfo& prompt, int32_t phase) const override {
    return engine::PlanTspRows(spec, prompt);
  }

  engine::DecodePlan PlanDecode(const KvPolicySpec& spec, const KvModelShape& shape,
                                const PromptInfo& prompt, int32_t layer,
                                int32_t kv_head) const override {
    return {};
  }

 private:
  HeadPlan PlanHead(const PromptInfo& prompt, int32_t layer, int32_t head,
                    int32_t num_slots) const {
    const Philox random(seed_ + static_cast<uint64_t>(prompt.num_tokens),
                        static_cast<uint64_t>(layer) << 16 | static_cast<uint64_t>(head));
    HeadPlan plan;
    // One head in eight keeps everything.
    const bool whole = random.Uniform(0) < 0.125;
    const int32_t wanted = 1 + static_cast<int32_t>(random.Uniform(1) * num_slots);
    plan.num_entries = whole ? num_slots : std::min(wanted, num_slots);
    plan.recent_slots = 1;
    int32_t left = plan.num_entries - 1;
    for (int32_t slot = 0; slot + 1 < num_slots && left > 0; ++slot) {
      const double share = static_cast<double>(left) / (num_slots - 1 - slot);
      if (random.Uniform(static_cast<uint64_t>(slot) + 2) < share) {
        plan.keep_slots.push_back(slot);
        --left;
      }
    }
    return plan;
  }

  const uint64_t seed_;
};

}  // namespace

std::unique_ptr<engine::KvPolicy> MakeRaggedPolicy(uint64_t seed) {
  return std::make_unique<RaggedPolicy>(seed);
}

}  // namespace headroom::testing
