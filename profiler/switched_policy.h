// A policy whose rules can be exchanged between two sequences: many head maps on one prefill.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/kv/policy.h"

namespace headroom::profiler {

// Passes everything on to the policy that was set last; all of them need the same scores. Set while
// no sequence is being made. One thread.
class SwitchedPolicy final : public engine::KvPolicy {
 public:
  explicit SwitchedPolicy(std::unique_ptr<engine::KvPolicy> policy) { Set(std::move(policy)); }

  void Set(std::unique_ptr<engine::KvPolicy> policy) {
    HEADROOM_CHECK(policy != nullptr);
    policy_ = std::move(policy);
  }

  std::string name() const override { return policy_->name(); }
  Status Validate(const engine::KvPolicySpec& spec) const override {
    return policy_->Validate(spec);
  }
  Status ValidateShape(const engine::KvPolicySpec& spec,
                       const engine::KvModelShape& shape) const override {
    return policy_->ValidateShape(spec, shape);
  }
  std::vector<std::string> OptionNames() const override { return policy_->OptionNames(); }
  bool has_recovery() const override { return policy_->has_recovery(); }
  engine::KvDecode default_decode() const override { return policy_->default_decode(); }
  bool LeavesWhole(const engine::KvPolicySpec& spec,
                   const engine::PromptInfo& prompt) const override {
    return policy_->LeavesWhole(spec, prompt);
  }
  engine::ScoreNeeds Needs(const engine::KvPolicySpec& spec, const engine::KvModelShape& shape,
                           const engine::PromptInfo& prompt) const override {
    return policy_->Needs(spec, shape, prompt);
  }
  std::vector<engine::PrefillPhase> PlanPhases(const engine::KvPolicySpec& spec,
                                               const engine::KvModelShape& shape,
                                               const engine::PromptInfo& prompt) const override {
    return policy_->PlanPhases(spec, shape, prompt);
  }
  engine::LayerPlan PlanPrefill(const engine::KvPolicySpec& spec, const engine::KvModelShape& shape,
                                const engine::PromptInfo& prompt, int32_t layer,
                                int32_t num_slots) const override {
    return policy_->PlanPrefill(spec, shape, prompt, layer, num_slots);
  }
  std::vector<engine::LayerPlan> PlanLayers(
      const engine::KvPolicySpec& spec, const engine::KvModelShape& shape,
      const engine::PromptInfo& prompt, const std::vector<int32_t>& layer_slots) const override {
    return policy_->PlanLayers(spec, shape, prompt, layer_slots);
  }
  engine::TspPlan PlanTsp(const engine::KvPolicySpec& spec, const engine::KvModelShape& shape,
                          const engine::PromptInfo& prompt, int32_t phase) const override {
    return policy_->PlanTsp(spec, shape, prompt, phase);
  }
  engine::DecodePlan PlanDecode(const engine::KvPolicySpec& spec, const engine::KvModelShape& shape,
                                const engine::PromptInfo& prompt, int32_t layer,
                                int32_t kv_head) const override {
    return policy_->PlanDecode(spec, shape, prompt, layer, kv_head);
  }
  engine::KvFootprint Footprint(const engine::KvPolicySpec& spec, const engine::KvModelShape& shape,
                                const engine::PromptInfo& prompt,
                                int32_t max_new_tokens) const override {
    return policy_->Footprint(spec, shape, prompt, max_new_tokens);
  }

 private:
  std::unique_ptr<engine::KvPolicy> policy_;
};

}  // namespace headroom::profiler
