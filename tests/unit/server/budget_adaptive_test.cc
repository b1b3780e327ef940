// What a head map changes about resolving budgets. The policy behind the name `adaptive` is a
// stand-in: here only names, defaults and refusals count.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <variant>

#include "server/budget_resolver.h"

namespace headroom::server {
namespace {

using engine::kPpm;
using engine::KvMode;
using engine::KvScope;

class NamedAdaptive final : public engine::KvPolicy {
 public:
  std::string name() const override { return "adaptive"; }
  Status Validate(const engine::KvPolicySpec&) const override { return OkStatus(); }
  std::vector<std::string> OptionNames() const override { return {"dense_share", "local_share"}; }
  engine::ScoreNeeds Needs(const engine::KvPolicySpec&, const engine::KvModelShape&,
                           const engine::PromptInfo&) const override {
    return {};
  }
  engine::LayerPlan PlanPrefill(const engine::KvPolicySpec&, const engine::KvModelShape&,
                                const engine::PromptInfo&, int32_t, int32_t) const override {
    return {};
  }
};

const HeadMapInfo kInfo = {
    .hash = "sha256:0a", .theta_ppm = 900'000, .profiled_tokens = 2000, .other_weights = false};

std::variant<ResolvedBudget, ApiError> Resolve(const std::function<void(BudgetFields&)>& set,
                                               int64_t prompt_tokens = 4000,
                                               const HeadMapInfo& info = kInfo) {
  engine::KvPolicyRegistry registry;
  registry.Add(std::make_unique<NamedAdaptive>());
  BudgetFields fields;
  set(fields);
  return ResolveBudget(fields, {}, registry, prompt_tokens, &info);
}

ResolvedBudget Resolved(const std::function<void(BudgetFields&)>& set, int64_t prompt_tokens = 4000,
                        const HeadMapInfo& info = kInfo) {
  auto result = Resolve(set, prompt_tokens, info);
  if (const auto* error = std::get_if<ApiError>(&result)) {
    ADD_FAILURE() << error->code << ": " << error->message;
    return {};
  }
  return std::get<ResolvedBudget>(result);
}

ApiError Refused(const std::function<void(BudgetFields&)>& set) {
  auto result = Resolve(set);
  if (std::holds_alternative<ResolvedBudget>(result)) {
    ADD_FAILURE() << "was not refused";
    return {};
  }
  return std::get<ApiError>(result);
}

TEST(AdaptiveBudgetTest, ANamedBudgetAloneMeansAdaptive) {
  const ResolvedBudget budget =
      Resolved([](BudgetFields& fields) { fields.kv_retention_ppm = 300'000; });
  EXPECT_EQ(budget.spec.policy, "adaptive");
  EXPECT_EQ(budget.head_map, "sha256:0a");
  EXPECT_EQ(budget.spec.retention_ppm, 300'000);
  EXPECT_EQ(budget.spec.tsp_ppm, kPpm);
  EXPECT_EQ(budget.spec.mode, KvMode::kBudget);
  EXPECT_EQ(budget.spec.scope, KvScope::kModel);
  EXPECT_FALSE(budget.spec.head_check);
  EXPECT_TRUE(budget.reasons.empty());
}

TEST(AdaptiveBudgetTest, NothingNamedStillMeansFull) {
  const ResolvedBudget budget = Resolved([](BudgetFields&) {});
  EXPECT_EQ(budget.spec.policy, "full");
  EXPECT_EQ(budget.head_map, "");
}

TEST(AdaptiveBudgetTest, OtherPoliciesDoNotNameTheMap) {
  EXPECT_EQ(Resolved([](BudgetFields& fields) { fields.kv_policy = "snapkv"; }).head_map, "");
}

TEST(AdaptiveBudgetTest, ThePolicyAloneGetsAFifthOfBoth) {
  const ResolvedBudget budget =
      Resolved([](BudgetFields& fields) { fields.kv_policy = "adaptive"; });
  EXPECT_EQ(budget.spec.retention_ppm, 200'000);
  EXPECT_EQ(budget.spec.tsp_ppm, 200'000);
}

TEST(AdaptiveBudgetTest, RecoveryIsABudgetWithTheMapsTarget) {
  const ResolvedBudget budget = Resolved([](BudgetFields& fields) { fields.kv_mode = "recovery"; });
  EXPECT_EQ(budget.spec.policy, "adaptive");
  EXPECT_EQ(budget.spec.mode, KvMode::kRecovery);
  EXPECT_EQ(budget.spec.retention_ppm, kPpm);
  EXPECT_EQ(budget.spec.recovery_ppm, 900'000);
  EXPECT_EQ(budget.applied_recovery, "0.9");
  const ResolvedBudget both = Resolved([](BudgetFields& fields) {
    fields.kv_mode = "both";
    fields.kv_retention_ppm = 300'000;
    fields.kv_recovery_ppm = 980'000;
  });
  EXPECT_EQ(both.spec.mode, KvMode::kBoth);
  EXPECT_EQ(both.spec.retention_ppm, 300'000);
  EXPECT_EQ(both.spec.recovery_ppm, 980'000);
}

TEST(AdaptiveBudgetTest, SettingsAreTakenAndNoted) {
  const ResolvedBudget budget = Resolved([](BudgetFields& fields) {
    fields.kv_retention_ppm = 200'000;
    fields.kv_scope = "layer";
    fields.kv_head_check = true;
    fields.kv_options = {{"dense_share", 0.25}};
  });
  EXPECT_EQ(budget.spec.scope, KvScope::kLayer);
  EXPECT_TRUE(budget.spec.head_check);
  EXPECT_EQ(budget.spec.options.dense_share_ppm, 250'000);
  EXPECT_EQ(budget.spec.options.local_share_ppm, std::nullopt);
  EXPECT_EQ(budget.asked[1].name, "kv_scope");
  EXPECT_EQ(budget.asked[1].value_text, "\"layer\"");
  EXPECT_EQ(budget.asked[2].value_text, "true");
  EXPECT_EQ(budget.applied_options[0].second, "0.25");
  EXPECT_EQ(budget.applied_options[1].second, "null");
}

TEST(AdaptiveBudgetTest, NamesWhatItRefuses) {
  struct Case {
    const char* param;
    const char* code;
    std::function<void(BudgetFields&)> set;
  };
  for (const Case& test : {
           Case{"kv_mode", "invalid_budget", [](BudgetFields& f) { f.kv_mode = "fast"; }},
           Case{"kv_scope", "invalid_budget",
                [](BudgetFields& f) {
                  f.kv_policy = "adaptive";
                  f.kv_scope = "head";
                }},
           Case{"kv_scope", "policy_unsupported", [](BudgetFields& f) { f.kv_scope = "model"; }},
           Case{"kv_mode", "policy_unsupported",
                [](BudgetFields& f) {
                  f.kv_policy = "snapkv";
                  f.kv_mode = "both";
                }},
           Case{"kv_mode", "policy_unsupported",
                [](BudgetFields& f) {
                  f.kv_mode = "recovery";
                  f.kv_retention_ppm = 200'000;
                }},
           Case{"kv_recovery", "policy_unsupported",
                [](BudgetFields& f) {
                  f.kv_policy = "adaptive";
                  f.kv_recovery_ppm = 900'000;
                }},
           Case{"kv_options", "invalid_budget",
                [](BudgetFields& f) {
                  f.kv_policy = "adaptive";
                  f.kv_options = {{"local_share", 0.500001}};
                }},
       }) {
    const ApiError error = Refused(test.set);
    EXPECT_EQ(error.code, test.code) << error.message;
    EXPECT_EQ(error.param, test.param) << error.message;
  }
}

TEST(AdaptiveBudgetTest, PromptsBeyondTheProfileAndOtherWeightsAreChecked) {
  const auto adaptive = [](BudgetFields& fields) {
    fields.kv_retention_ppm = 300'000;
    fields.kv_head_check = false;
  };
  EXPECT_FALSE(Resolved(adaptive, 8003).spec.head_check);
  EXPECT_TRUE(Resolved(adaptive, 8004).spec.head_check);  // a quarter is above 2000
  HeadMapInfo other = kInfo;
  other.other_weights = true;
  EXPECT_TRUE(Resolved(adaptive, 100, other).spec.head_check);
  HeadMapInfo unknown = kInfo;
  unknown.profiled_tokens = 0;
  EXPECT_FALSE(Resolved(adaptive, 100'000, unknown).spec.head_check);
}

}  // namespace
}  // namespace headroom::server
