#include "tests/support/staged_policy.h"

#include <string>
#include <vector>

#include "engine/kv/policies/policy_util.h"

namespace headroom::testing {
namespace {

using engine::KvModelShape;
using engine::KvPolicySpec;
using engine::PromptInfo;

class StagedPolicy : public engine::KvPolicy {
 public:
  Status Validate(const KvPolicySpec& spec) const override { return engine::ValidateRanges(spec); }
  engine::ScoreNeeds Needs(const KvPolicySpec& spec, const KvModelShape& shape,
                           const PromptInfo& prompt) const override {
    return engine::WindowNeeds(engine::WindowRows(spec, prompt));
  }
  engine::LayerPlan PlanPrefill(const KvPolicySpec& spec, const KvModelShape& shape,
                                const PromptInfo& prompt, int32_t layer,
                                int32_t num_slots) const override {
    return {};
  }
  engine::TspPlan PlanTsp(const KvPolicySpec& spec, const KvModelShape& shape,
                          const PromptInfo& prompt, int32_t phase) const override {
    return {.num_rows = prompt.num_tokens, .recent_slots = engine::WindowRows(spec, prompt)};
  }
  engine::DecodePlan PlanDecode(const KvPolicySpec& spec, const KvModelShape& shape,
                                const PromptInfo& prompt, int32_t layer,
                                int32_t kv_head) const override {
    return {};
  }
};

class StairsPolicy final : public StagedPolicy {
 public:
  std::string name() const override { return "stairs"; }
  std::vector<engine::PrefillPhase> PlanPhases(const KvPolicySpec& spec, const KvModelShape& shape,
                                               const PromptInfo& prompt) const override {
    std::vector<engine::PrefillPhase> phases;
    for (int32_t layer = 0; layer < shape.num_layers; ++layer) {
      phases.push_back({.layer_begin = layer,
                        .layer_end = layer + 1,
                        .selects_rows = layer + 1 < shape.num_layers});
    }
    return phases;
  }
};

class AgainPolicy final : public StagedPolicy {
 public:
  std::string name() const override { return "again"; }
  std::vector<engine::PrefillPhase> PlanPhases(const KvPolicySpec& spec, const KvModelShape& shape,
                                               const PromptInfo& prompt) const override {
    return {
        {.layer_begin = 0, .layer_end = shape.tsp_layer, .selects_rows = true, .restarts = true},
        {.layer_begin = 0, .layer_end = shape.num_layers}};
  }
};

}  // namespace

std::unique_ptr<engine::KvPolicy> MakeStairsPolicy() { return std::make_unique<StairsPolicy>(); }
std::unique_ptr<engine::KvPolicy> MakeAgainPolicy() { return std::make_unique<AgainPolicy>(); }

}  // namespace headroom::testing
