#include "server/budget_resolver.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <variant>

namespace headroom::server {
namespace {

using engine::kPpm;

constexpr int64_t kLongPrompt = 10'000;

std::variant<ResolvedBudget, ApiError> Resolve(const BudgetFields& body,
                                               const BudgetFields& header = {},
                                               int64_t prompt_tokens = kLongPrompt) {
  static const engine::KvPolicyRegistry registry;
  return ResolveBudget(body, header, registry, prompt_tokens);
}

ResolvedBudget Resolved(const BudgetFields& body, const BudgetFields& header = {},
                        int64_t prompt_tokens = kLongPrompt) {
  auto result = Resolve(body, header, prompt_tokens);
  if (const auto* error = std::get_if<ApiError>(&result)) {
    ADD_FAILURE() << error->code << ": " << error->message;
    return {};
  }
  return std::get<ResolvedBudget>(result);
}

ApiError Refused(const BudgetFields& body, const BudgetFields& header = {},
                 int64_t prompt_tokens = kLongPrompt) {
  auto result = Resolve(body, header, prompt_tokens);
  if (std::holds_alternative<ResolvedBudget>(result)) {
    ADD_FAILURE() << "was not refused";
    return {};
  }
  return std::get<ApiError>(result);
}

bool Has(const std::vector<std::string>& reasons, const std::string& reason) {
  return std::find(reasons.begin(), reasons.end(), reason) != reasons.end();
}

const ResolvedBudget::Field* Asked(const ResolvedBudget& budget, const std::string& name) {
  for (const ResolvedBudget::Field& field : budget.asked) {
    if (field.name == name) {
      return &field;
    }
  }
  return nullptr;
}

TEST(ResolveBudgetTest, NothingNamedIsTheFullCache) {
  const ResolvedBudget budget = Resolved({});
  EXPECT_EQ(budget.spec.policy, "full");
  EXPECT_EQ(budget.spec.retention_ppm, kPpm);
  EXPECT_EQ(budget.spec.tsp_ppm, kPpm);
  EXPECT_EQ(budget.spec.window, 8);
  EXPECT_FALSE(budget.spec.window_raw);
  EXPECT_EQ(budget.spec.pool, kernels::PoolKind::kMax);
  EXPECT_EQ(budget.spec.pool_width, 7);
  EXPECT_EQ(budget.spec.sink_tokens, 4);
  EXPECT_EQ(budget.spec.min_prompt, 512);
  EXPECT_EQ(budget.spec.tsp_min_prompt, 2048);
  EXPECT_EQ(budget.spec.decode, engine::KvDecode::kGrow);
  EXPECT_FALSE(budget.spec.strict);
  EXPECT_TRUE(budget.asked.empty());
  EXPECT_TRUE(budget.reasons.empty());
}

TEST(ResolveBudgetTest, ANamedBudgetAloneMeansFastkvWithoutAHeadMap) {
  const auto with = [](const std::function<void(BudgetFields&)>& set) {
    BudgetFields fields;
    set(fields);
    return Resolved(fields);
  };
  for (const ResolvedBudget& budget : {
           with([](BudgetFields& fields) { fields.kv_retention_ppm = 300'000; }),
           with([](BudgetFields& fields) { fields.tsp_ratio_ppm = 300'000; }),
           with([](BudgetFields& fields) { fields.kv_retention_tokens = 300; }),
           with([](BudgetFields& fields) { fields.tsp_tokens = 300; }),
       }) {
    EXPECT_EQ(budget.spec.policy, "fastkv");
    EXPECT_EQ(budget.reasons, std::vector<std::string>{"no_head_map"});
  }
}

TEST(ResolveBudgetTest, OneNamedBudgetLeavesTheOtherAtOne) {
  BudgetFields retention;
  retention.kv_retention_ppm = 100'000;
  EXPECT_EQ(Resolved(retention).spec.retention_ppm, 100'000);
  EXPECT_EQ(Resolved(retention).spec.tsp_ppm, kPpm);
  BudgetFields tsp;
  tsp.tsp_ratio_ppm = 200'000;
  EXPECT_EQ(Resolved(tsp).spec.retention_ppm, kPpm);
  EXPECT_EQ(Resolved(tsp).spec.tsp_ppm, 200'000);
  // Also with a policy, and with the other in another source.
  retention.kv_policy = "fastkv";
  EXPECT_EQ(Resolved(retention).spec.tsp_ppm, kPpm);
  EXPECT_EQ(Resolved(retention, tsp).spec.tsp_ppm, 200'000);
}

TEST(ResolveBudgetTest, AnAbsoluteFormAloneLeavesBothRatiosAtOne) {
  BudgetFields fields;
  fields.kv_policy = "fastkv";
  fields.kv_retention_tokens = 64;
  const ResolvedBudget budget = Resolved(fields);
  EXPECT_EQ(budget.spec.retention_ppm, kPpm);
  EXPECT_EQ(budget.spec.tsp_ppm, kPpm);
  EXPECT_EQ(budget.spec.retention_tokens, 64);
}

TEST(ResolveBudgetTest, APolicyAloneGetsItsOwnBudgets) {
  struct Case {
    const char* policy;
    int64_t retention_ppm;
    int64_t tsp_ppm;
    engine::KvDecode decode;
  };
  for (const Case& wanted : {Case{"full", kPpm, kPpm, engine::KvDecode::kGrow},
                             Case{"streaming", 200'000, kPpm, engine::KvDecode::kTyped},
                             Case{"h2o", 200'000, kPpm, engine::KvDecode::kGrow},
                             Case{"scissorhands", 200'000, kPpm, engine::KvDecode::kGrow},
                             Case{"snapkv", 200'000, kPpm, engine::KvDecode::kGrow},
                             Case{"adakv", 200'000, kPpm, engine::KvDecode::kGrow},
                             Case{"pyramidinfer", 200'000, kPpm, engine::KvDecode::kGrow},
                             Case{"gemfilter", 200'000, kPpm, engine::KvDecode::kGrow},
                             Case{"fastgen", kPpm, kPpm, engine::KvDecode::kGrow},
                             Case{"random", 200'000, kPpm, engine::KvDecode::kGrow},
                             Case{"fastkv", 200'000, 200'000, engine::KvDecode::kGrow}}) {
    BudgetFields fields;
    fields.kv_policy = wanted.policy;
    fields.kv_window = 16;  // a setting is no budget
    const ResolvedBudget budget = Resolved(fields);
    EXPECT_EQ(budget.spec.policy, wanted.policy);
    EXPECT_EQ(budget.spec.retention_ppm, wanted.retention_ppm) << wanted.policy;
    EXPECT_EQ(budget.spec.tsp_ppm, wanted.tsp_ppm) << wanted.policy;
    EXPECT_EQ(budget.spec.decode, wanted.decode) << wanted.policy;
    EXPECT_TRUE(budget.reasons.empty());
  }
}

TEST(ResolveBudgetTest, TheBodyGoesBeforeTheHeaderFieldByField) {
  BudgetFields body;
  body.kv_retention_ppm = 100'000;
  BudgetFields header;
  header.kv_retention_ppm = 500'000;
  header.tsp_ratio_ppm = 400'000;
  header.kv_sink_tokens = 2;
  const ResolvedBudget budget = Resolved(body, header);
  EXPECT_EQ(budget.spec.retention_ppm, 100'000);
  EXPECT_EQ(budget.spec.tsp_ppm, 400'000);
  EXPECT_EQ(budget.spec.sink_tokens, 2);
  ASSERT_NE(Asked(budget, "kv_retention"), nullptr);
  EXPECT_EQ(Asked(budget, "kv_retention")->source, "body");
  EXPECT_EQ(Asked(budget, "kv_retention")->value_text, "0.1");
  EXPECT_EQ(Asked(budget, "tsp_ratio")->source, "header");
  EXPECT_TRUE(Has(budget.reasons, "budget_conflict"));
}

TEST(ResolveBudgetTest, AgreeingSourcesAreNoConflict) {
  BudgetFields body;
  body.kv_retention_ppm = 100'000;
  body.kv_strict = true;
  BudgetFields header;
  header.kv_retention_ppm = 100'000;
  EXPECT_FALSE(Has(Resolved(body, header).reasons, "budget_conflict"));
}

TEST(ResolveBudgetTest, AStrictRequestRefusesAConflict) {
  BudgetFields body;
  body.kv_retention_ppm = 100'000;
  BudgetFields header;
  header.kv_retention_ppm = 500'000;
  header.kv_strict = true;
  const ApiError error = Refused(body, header);
  EXPECT_EQ(error.http_status, 400);
  EXPECT_EQ(error.type, "invalid_request_error");
  EXPECT_EQ(error.code, "budget_conflict");
  EXPECT_EQ(error.param, "kv_retention");
}

TEST(ResolveBudgetTest, TextFieldsConflictToo) {
  BudgetFields body;
  body.kv_policy = "full";
  BudgetFields header;
  header.kv_policy = "fastkv";
  const ResolvedBudget budget = Resolved(body, header);
  EXPECT_EQ(budget.spec.policy, "full");
  EXPECT_TRUE(Has(budget.reasons, "budget_conflict"));
}

struct RefusalCase {
  const char* name;
  void (*set)(BudgetFields&);
  const char* code;
  const char* field;  // in the body; the header's name is derived
};

class RefusalTest : public testing::TestWithParam<RefusalCase> {
 protected:
  static std::string HeaderName(std::string field) {
    std::replace(field.begin(), field.end(), '_', '-');
    return "x-" + field;
  }
};

TEST_P(RefusalTest, NamesTheFieldAsTheClientWroteIt) {
  BudgetFields fields;
  GetParam().set(fields);
  const ApiError by_body = Refused(fields);
  EXPECT_EQ(by_body.http_status, 400);
  EXPECT_EQ(by_body.type, "invalid_request_error");
  EXPECT_EQ(by_body.code, GetParam().code);
  EXPECT_EQ(by_body.param, GetParam().field);
  const ApiError by_header = Refused({}, fields);
  EXPECT_EQ(by_header.code, GetParam().code);
  EXPECT_EQ(by_header.param, HeaderName(GetParam().field));
}

INSTANTIATE_TEST_SUITE_P(
    Wire, RefusalTest,
    testing::Values(
        RefusalCase{"RetentionZero", [](BudgetFields& f) { f.kv_retention_ppm = 0; },
                    "invalid_budget", "kv_retention"},
        RefusalCase{"RetentionNegative", [](BudgetFields& f) { f.kv_retention_ppm = -1; },
                    "invalid_budget", "kv_retention"},
        RefusalCase{"RetentionOverOne", [](BudgetFields& f) { f.kv_retention_ppm = kPpm + 1; },
                    "invalid_budget", "kv_retention"},
        RefusalCase{"TspZero", [](BudgetFields& f) { f.tsp_ratio_ppm = 0; }, "invalid_budget",
                    "tsp_ratio"},
        RefusalCase{"TspOverOne", [](BudgetFields& f) { f.tsp_ratio_ppm = 2 * kPpm; },
                    "invalid_budget", "tsp_ratio"},
        RefusalCase{"RetentionTokensZero", [](BudgetFields& f) { f.kv_retention_tokens = 0; },
                    "invalid_budget", "kv_retention_tokens"},
        RefusalCase{"RetentionTokensHuge",
                    [](BudgetFields& f) { f.kv_retention_tokens = INT64_MAX; }, "invalid_budget",
                    "kv_retention_tokens"},
        RefusalCase{"TspTokensZero", [](BudgetFields& f) { f.tsp_tokens = 0; }, "invalid_budget",
                    "tsp_tokens"},
        RefusalCase{"WindowZero", [](BudgetFields& f) { f.kv_window = 0; }, "invalid_budget",
                    "kv_window"},
        RefusalCase{"WindowOver", [](BudgetFields& f) { f.kv_window = 257; }, "invalid_budget",
                    "kv_window"},
        RefusalCase{"WindowRawOver", [](BudgetFields& f) { f.kv_window_raw = 257; },
                    "invalid_budget", "kv_window_raw"},
        RefusalCase{"BothWindows",
                    [](BudgetFields& f) {
                      f.kv_window = 8;
                      f.kv_window_raw = 8;
                    },
                    "invalid_budget", "kv_window_raw"},
        RefusalCase{"Pool", [](BudgetFields& f) { f.kv_pool = "median"; }, "invalid_budget",
                    "kv_pool"},
        RefusalCase{"PoolWidthEven", [](BudgetFields& f) { f.kv_pool_width = 4; }, "invalid_budget",
                    "kv_pool_width"},
        RefusalCase{"PoolWidthOver", [](BudgetFields& f) { f.kv_pool_width = 33; },
                    "invalid_budget", "kv_pool_width"},
        RefusalCase{"SinksOver", [](BudgetFields& f) { f.kv_sink_tokens = 65; }, "invalid_budget",
                    "kv_sink_tokens"},
        RefusalCase{"SinksNegative", [](BudgetFields& f) { f.kv_sink_tokens = -1; },
                    "invalid_budget", "kv_sink_tokens"},
        RefusalCase{"MinPromptNegative", [](BudgetFields& f) { f.kv_min_prompt = -1; },
                    "invalid_budget", "kv_min_prompt"},
        RefusalCase{"TspMinPromptNegative", [](BudgetFields& f) { f.tsp_min_prompt = -1; },
                    "invalid_budget", "tsp_min_prompt"},
        RefusalCase{"Decode", [](BudgetFields& f) { f.kv_decode = "shrink"; }, "invalid_budget",
                    "kv_decode"},
        RefusalCase{"UnknownPolicy", [](BudgetFields& f) { f.kv_policy = "magic"; },
                    "invalid_budget", "kv_policy"},
        RefusalCase{"FullWithRetention",
                    [](BudgetFields& f) {
                      f.kv_policy = "full";
                      f.kv_retention_ppm = 200'000;
                    },
                    "policy_unsupported", "kv_policy"},
        RefusalCase{"FullWithRetentionTokens",
                    [](BudgetFields& f) {
                      f.kv_policy = "full";
                      f.kv_retention_tokens = 20;
                    },
                    "policy_unsupported", "kv_policy"},
        RefusalCase{"StreamingWithTsp",
                    [](BudgetFields& f) {
                      f.kv_policy = "streaming";
                      f.tsp_ratio_ppm = 200'000;
                    },
                    "policy_unsupported", "kv_policy"},
        RefusalCase{"FastkvTyped",
                    [](BudgetFields& f) {
                      f.kv_policy = "fastkv";
                      f.kv_decode = "typed";
                    },
                    "policy_unsupported", "kv_policy"},
        RefusalCase{"TypedWithoutAPolicy", [](BudgetFields& f) { f.kv_decode = "typed"; },
                    "policy_unsupported", "kv_decode"}),
    [](const auto& of) { return std::string(of.param.name); });

TEST(ResolveBudgetTest, AdaptiveWithoutAHeadMapIsUnsupportedNotUnknown) {
  BudgetFields fields;
  fields.kv_policy = "adaptive";
  const ApiError error = Refused(fields);
  EXPECT_EQ(error.code, "policy_unsupported");
  EXPECT_EQ(error.param, "kv_policy");
  EXPECT_NE(error.message.find("--head-map"), std::string::npos) << error.message;
}

TEST(ResolveBudgetTest, AnUnknownPolicyIsNotRepeatedButTheKnownOnesAreNamed) {
  BudgetFields fields;
  fields.kv_policy = "canary-5e1f";
  const ApiError error = Refused(fields);
  EXPECT_EQ(error.message.find("canary"), std::string::npos);
  for (const char* known : {"full", "streaming", "fastkv"}) {
    EXPECT_NE(error.message.find(known), std::string::npos) << error.message;
  }
}

TEST(ResolveBudgetTest, ARefusedPairIsNamedOnBothSides) {
  BudgetFields fields;
  fields.kv_policy = "full";
  fields.kv_retention_ppm = 200'000;
  const std::string message = Refused(fields).message;
  EXPECT_NE(message.find("kv_retention"), std::string::npos) << message;
  EXPECT_NE(message.find("full"), std::string::npos) << message;
}

TEST(ResolveBudgetTest, SettingsOfAdaptiveAreRefusedWithoutAHeadMap) {
  BudgetFields mode;
  mode.kv_mode = "both";
  EXPECT_EQ(Refused(mode).code, "policy_unsupported");
  EXPECT_EQ(Refused(mode).param, "kv_mode");
  EXPECT_EQ(Refused({}, mode).param, "x-kv-mode");
  BudgetFields scope;
  scope.kv_scope = "layer";
  EXPECT_EQ(Refused(scope).param, "kv_scope");
  BudgetFields check;
  check.kv_head_check = true;
  EXPECT_EQ(Refused({}, check).param, "x-kv-head-check");
  check.kv_head_check = false;
  EXPECT_EQ(Resolved(check).spec.policy, "full");
}

TEST(ResolveBudgetTest, ARecoveryTargetGoesWithFastGenAlone) {
  BudgetFields fields;
  fields.kv_recovery_ppm = 900'000;
  EXPECT_EQ(Refused(fields).code, "policy_unsupported");
  EXPECT_EQ(Refused(fields).param, "kv_recovery");
  EXPECT_EQ(Refused({}, fields).param, "x-kv-recovery");
  fields.kv_policy = "fastgen";
  EXPECT_EQ(Resolved(fields).spec.recovery_ppm, 900'000);
  EXPECT_EQ(Resolved(fields).applied_recovery, "0.9");
  EXPECT_EQ(Asked(Resolved(fields), "kv_recovery")->value_text, "0.9");
  fields.kv_recovery_ppm = kPpm;
  EXPECT_EQ(Refused(fields).code, "invalid_budget");
  fields.kv_recovery_ppm = std::nullopt;
  EXPECT_EQ(Resolved(fields).spec.recovery_ppm, 950'000);
  fields.kv_retention_ppm = 200'000;
  EXPECT_EQ(Refused(fields).code, "policy_unsupported");
  fields.kv_retention_ppm = std::nullopt;
  fields.tsp_ratio_ppm = 200'000;
  EXPECT_EQ(Refused(fields).code, "policy_unsupported");
}

TEST(ResolveBudgetTest, TspGoesWithFullAndFastKvAlone) {
  for (const char* policy : {"streaming", "h2o", "scissorhands", "snapkv", "adakv", "pyramidinfer",
                             "gemfilter", "random"}) {
    BudgetFields fields;
    fields.kv_policy = policy;
    fields.kv_retention_ppm = 200'000;
    EXPECT_EQ(Resolved(fields).spec.policy, policy);
    fields.tsp_ratio_ppm = 200'000;
    EXPECT_EQ(Refused(fields).code, "policy_unsupported") << policy;
    fields.tsp_ratio_ppm = std::nullopt;
    fields.tsp_tokens = 100;
    EXPECT_EQ(Refused(fields).code, "policy_unsupported") << policy;
  }
}

TEST(ResolveBudgetTest, OptionsGoToThePolicyThatHasThem) {
  BudgetFields fields;
  fields.kv_policy = "adakv";
  fields.kv_options = {{"alpha", 0.5}};
  const ResolvedBudget adakv = Resolved(fields);
  EXPECT_EQ(adakv.spec.options.alpha_ppm, 500'000);
  EXPECT_EQ(adakv.applied_options,
            (std::vector<std::pair<std::string, std::string>>{{"alpha", "0.5"}}));
  fields.kv_policy = "h2o";
  fields.kv_options = {{"recent_share", int64_t{0}}, {"count_normalised", true}};
  EXPECT_EQ(Resolved(fields).spec.options.recent_share_ppm, 0);
  EXPECT_TRUE(Resolved(fields).spec.options.count_normalised);
  fields.kv_policy = "fastgen";
  fields.kv_options = {{"rows", std::string("all")}, {"fraction", 0.1}};
  EXPECT_TRUE(Resolved(fields).spec.options.all_rows);
  EXPECT_EQ(Resolved(fields).spec.options.fraction_ppm, 100'000);
  fields.kv_policy = "gemfilter";
  fields.kv_options = {{"filter_layer", int64_t{9}}};
  EXPECT_EQ(Resolved(fields).spec.options.filter_layer, 9);
  fields.kv_policy = "pyramidinfer";
  fields.kv_options = {{"schedule", std::string("flat")}};
  EXPECT_TRUE(Resolved(fields).spec.options.flat);
  fields.kv_policy = "random";
  fields.kv_options = {{"seed", int64_t{7}}};
  EXPECT_EQ(Resolved(fields).spec.options.seed, 7u);
}

TEST(ResolveBudgetTest, OptionsOfOthersAndWrongValuesAreRefusedWithoutRepeatingThem) {
  struct Case {
    const char* policy;
    PolicyOption option;
    const char* message;
  };
  for (const Case& refused :
       {Case{"adakv",
             {"canary-77", 0.5},
             "kv_options: policy adakv has no such setting; it has alpha"},
        Case{"adakv",
             {"recent_share", 0.5},
             "kv_options: policy adakv has no such setting; it has alpha"},
        Case{"snapkv", {"alpha", 0.5}, "kv_options: policy snapkv has no settings of its own"},
        Case{"adakv",
             {"alpha", 1.5},
             "kv_options.alpha: wanted a ratio in [0, 1] with at most six decimal places"},
        Case{"adakv",
             {"alpha", std::string("0.5")},
             "kv_options.alpha: wanted a ratio in [0, 1] with at most six decimal places"},
        Case{"fastgen",
             {"fraction", 0.0},
             "kv_options.fraction: wanted a ratio in (0, 1] with at most six decimal places"},
        Case{"fastgen", {"rows", true}, "kv_options.rows: wanted recent or all"},
        Case{"h2o",
             {"count_normalised", int64_t{1}},
             "kv_options.count_normalised: wanted true or false"},
        Case{"gemfilter",
             {"filter_layer", int64_t{-1}},
             "kv_options.filter_layer: wanted the index of a layer"},
        Case{"random",
             {"seed", int64_t{-1}},
             "kv_options.seed: wanted a whole number from 0 to 2^53 - 1"}}) {
    BudgetFields fields;
    fields.kv_policy = refused.policy;
    fields.kv_options = {refused.option};
    EXPECT_EQ(Refused(fields).message, refused.message);
    EXPECT_EQ(Refused(fields).code, "invalid_budget");
    EXPECT_EQ(Refused(fields).param, "kv_options");
  }
}

TEST(ResolveBudgetTest, FullWithTspIsTspOnly) {
  BudgetFields fields;
  fields.kv_policy = "full";
  fields.tsp_ratio_ppm = 200'000;
  const ResolvedBudget budget = Resolved(fields);
  EXPECT_EQ(budget.spec.retention_ppm, kPpm);
  EXPECT_EQ(budget.spec.tsp_ppm, 200'000);
}

TEST(ResolveBudgetTest, SettingsReachTheSpec) {
  BudgetFields fields;
  fields.kv_window_raw = 16;
  fields.kv_pool = "avg";
  fields.kv_pool_width = 5;
  fields.kv_sink_tokens = 0;
  fields.kv_min_prompt = 0;
  fields.tsp_min_prompt = 1;
  const ResolvedBudget budget = Resolved(fields);
  EXPECT_EQ(budget.spec.window, 16);
  EXPECT_TRUE(budget.spec.window_raw);
  EXPECT_EQ(budget.spec.pool, kernels::PoolKind::kAvg);
  EXPECT_EQ(budget.spec.pool_width, 5);
  EXPECT_EQ(budget.spec.sink_tokens, 0);
  EXPECT_EQ(budget.spec.min_prompt, 0);
  EXPECT_EQ(budget.spec.tsp_min_prompt, 1);
}

TEST(ResolveBudgetTest, StreamingMayGrow) {
  BudgetFields fields;
  fields.kv_policy = "streaming";
  fields.kv_decode = "grow";
  EXPECT_EQ(Resolved(fields).spec.decode, engine::KvDecode::kGrow);
}

TEST(ResolveBudgetTest, AShortPromptIsServedAndRefusedUnderStrict) {
  BudgetFields fields;
  fields.kv_retention_ppm = 200'000;
  EXPECT_EQ(Resolved(fields, {}, 511).spec.retention_ppm, 200'000);
  fields.kv_strict = true;
  const ApiError error = Refused(fields, {}, 511);
  EXPECT_EQ(error.code, "budget_not_exact");
  EXPECT_EQ(error.param, "kv_strict");
  Resolved(fields, {}, 512);
}

TEST(ResolveBudgetTest, TspHasAThresholdOfItsOwn) {
  BudgetFields fields;
  fields.tsp_ratio_ppm = 200'000;
  fields.kv_strict = true;
  EXPECT_EQ(Refused(fields, {}, 2047).code, "budget_not_exact");
  Resolved(fields, {}, 2048);
}

TEST(ResolveBudgetTest, ABudgetThatDoesNotBindIsExactOnAShortPrompt) {
  BudgetFields fields;
  fields.kv_policy = "fastkv";
  fields.kv_retention_tokens = 400;
  fields.kv_strict = true;
  Resolved(fields, {}, 400);
  EXPECT_EQ(Refused(fields, {}, 401).code, "budget_not_exact");
}

}  // namespace
}  // namespace headroom::server
