// What the policies plan, in numbers, and what they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "engine/kv/policy.h"
#include "engine/kv/prefill_plan.h"

namespace headroom::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr KvModelShape kShape = {.num_layers = 4, .num_kv_heads = 2, .tsp_layer = 1};

KvPolicySpec Spec(const std::string& policy) {
  KvPolicySpec spec;
  spec.policy = policy;
  spec.min_prompt = 0;
  spec.tsp_min_prompt = 0;
  return spec;
}

PrefillPlan Plan(const KvPolicySpec& spec, int32_t num_tokens, int32_t content_end = -1) {
  const KvPolicyRegistry registry;
  return MakePrefillPlan(
      *registry.Find(spec.policy), spec, kShape,
      {.num_tokens = num_tokens, .content_end = content_end < 0 ? num_tokens : content_end});
}

TEST(KvPolicyRegistryTest, ListsThePoliciesAndKnowsNoOthers) {
  const KvPolicyRegistry registry;
  EXPECT_THAT(registry.Names(),
              ElementsAre("full", "streaming", "h2o", "scissorhands", "snapkv", "adakv",
                          "pyramidinfer", "gemfilter", "fastkv", "fastgen", "random"));
  EXPECT_EQ(registry.Find("pyramidkv"), nullptr);
}

struct BudgetCase {
  int32_t num_tokens;
  int64_t rho_ppm;
  int64_t tau_ppm;
  std::optional<int64_t> retention_tokens;
  std::optional<int64_t> tsp_tokens;
  int32_t entries_below;  // layers up to T
  int32_t entries_above;
  int32_t rows;  // that go on above T
};

TEST(FastKvPolicyTest, BudgetsAreExactIntegers) {
  const std::vector<BudgetCase> cases = {
      {100, 290'000, 1'000'000, {}, {}, 29, 29, 100},
      {8192, 100'000, 150'000, {}, {}, 819, 819, 1228},
      {1000, 200'000, 200'000, {}, {}, 200, 200, 200},
      {1000, 300'000, 200'000, {}, {}, 300, 200, 200},  // never more than the layer saw
      {1000, 999'999, 1'000'000, {}, {}, 999, 999, 1000},
      {1000, 500'000, 1'000'000, 64, {}, 64, 64, 1000},
      {1000, 50'000, 1'000'000, 64, {}, 50, 50, 1000},
      {1000, 1'000'000, 1'000'000, 64, {}, 64, 64, 1000},
      {1000, 100'000, 1'000'000, {}, 300, 100, 100, 300},
      {1000, 100'000, 200'000, {}, 300, 100, 100, 200},
      {1000, 1'000'000, 1'000'000, 2000, 2000, 1000, 1000, 1000},
      {5, 1, 1, {}, {}, 5, 5, 5},  // sinks and window are the whole prompt
      {50, 1, 1, {}, {}, 12, 12, 12}};
  for (const BudgetCase& test : cases) {
    SCOPED_TRACE(::testing::Message()
                 << "N " << test.num_tokens << " rho " << test.rho_ppm << " tau " << test.tau_ppm);
    KvPolicySpec spec = Spec("fastkv");
    spec.retention_ppm = test.rho_ppm;
    spec.tsp_ppm = test.tau_ppm;
    spec.retention_tokens = test.retention_tokens;
    spec.tsp_tokens = test.tsp_tokens;
    const PrefillPlan plan = Plan(spec, test.num_tokens);
    for (int32_t head = 0; head < 2; ++head) {
      EXPECT_EQ(KeptSlots(plan, 0, head), test.entries_below);
      EXPECT_EQ(KeptSlots(plan, 1, head), test.entries_below);
      EXPECT_EQ(KeptSlots(plan, 2, head), test.entries_above);
      EXPECT_EQ(KeptSlots(plan, 3, head), test.entries_above);
    }
    EXPECT_EQ(plan.phase_rows.back(), test.rows);
    EXPECT_EQ(plan.phases.size(), test.rows < test.num_tokens ? 2u : 1u);
  }
}

TEST(FastKvPolicyTest, RatiosOfOnePlanTheFullPath) {
  const PrefillPlan plan = Plan(Spec("fastkv"), 1000);
  EXPECT_EQ(plan.needs.window_rows, 0);
  EXPECT_EQ(plan.phases.size(), 1u);
  for (const LayerPlan& layer : plan.layers) {
    EXPECT_TRUE(layer.keep_all);
  }
  EXPECT_THAT(plan.reasons, IsEmpty());
}

TEST(FastKvPolicyTest, TheWindowReachesBackFromTheLastContentToken) {
  KvPolicySpec spec = Spec("fastkv");
  spec.retention_ppm = 500'000;
  EXPECT_EQ(Plan(spec, 100, 95).needs.window_rows, 13);
  EXPECT_EQ(Plan(spec, 100, 95).layers[0].heads[0].recent_slots, 13);
  spec.window_raw = true;
  EXPECT_EQ(Plan(spec, 100, 95).needs.window_rows, 8);
}

TEST(FastKvPolicyTest, ShortPromptsAreLeftWholeByTheirOwnThreshold) {
  KvPolicySpec spec = Spec("fastkv");
  spec.retention_ppm = 100'000;
  spec.tsp_ppm = 200'000;
  spec.min_prompt = 512;
  spec.tsp_min_prompt = 2048;
  const PrefillPlan shorter = Plan(spec, 511);
  EXPECT_EQ(KeptSlots(shorter, 0, 0), 511);
  EXPECT_EQ(shorter.retention_ppm, kPpm);
  EXPECT_THAT(shorter.reasons, ElementsAre("short_prompt"));
  const PrefillPlan between = Plan(spec, 512);
  EXPECT_EQ(KeptSlots(between, 0, 0), 51);
  EXPECT_EQ(between.phase_rows.back(), 512);
  EXPECT_EQ(between.retention_ppm, 100'000);
  EXPECT_EQ(between.tsp_ppm, kPpm);
  EXPECT_THAT(between.reasons, ElementsAre("short_prompt"));
  const PrefillPlan longer = Plan(spec, 2048);
  EXPECT_EQ(longer.phase_rows.back(), 409);
  EXPECT_THAT(longer.reasons, IsEmpty());
}

TEST(FastKvPolicyTest, FloorsBeatBudgetsAndSaySo) {
  KvPolicySpec spec = Spec("fastkv");
  spec.retention_ppm = 10'000;
  const PrefillPlan plan = Plan(spec, 100);
  EXPECT_EQ(KeptSlots(plan, 0, 0), 12);  // 4 sinks + 8 window rows
  EXPECT_THAT(plan.reasons, ElementsAre("floor"));
  spec.retention_ppm = kPpm;
  spec.tsp_ppm = 10'000;
  EXPECT_EQ(Plan(spec, 100).phase_rows.back(), 12);
  EXPECT_THAT(Plan(spec, 100).reasons, ElementsAre("floor"));
}

TEST(FullPolicyTest, TspAloneKeepsEverythingThatEachLayerSaw) {
  KvPolicySpec spec = Spec("full");
  spec.tsp_ppm = 300'000;
  const PrefillPlan plan = Plan(spec, 1000);
  EXPECT_EQ(KeptSlots(plan, 0, 0), 1000);
  EXPECT_EQ(KeptSlots(plan, 1, 0), 1000);
  EXPECT_EQ(KeptSlots(plan, 2, 0), 300);
}

TEST(StreamingPolicyTest, KeepsSinksAndTheMostRecent) {
  KvPolicySpec spec = Spec("streaming");
  spec.retention_ppm = 200'000;
  const PrefillPlan plan = Plan(spec, 512);
  const HeadPlan& head = plan.layers[3].heads[1];
  EXPECT_EQ(head.num_entries, 102);
  EXPECT_EQ(head.sink_slots, 4);
  EXPECT_EQ(head.recent_slots, 98);
  EXPECT_EQ(plan.needs.window_rows, 0);
}

TEST(StreamingPolicyTest, DecodeEvictsOnlyWhenTypedAndBounded) {
  const KvPolicyRegistry registry;
  const KvPolicy& policy = *registry.Find("streaming");
  const PromptInfo prompt = {.num_tokens = 512, .content_end = 512};
  KvPolicySpec spec = Spec("streaming");
  spec.retention_ppm = 200'000;
  EXPECT_FALSE(policy.PlanDecode(spec, kShape, prompt, 0, 0).evicts());
  spec.decode = KvDecode::kTyped;
  EXPECT_TRUE(policy.PlanDecode(spec, kShape, prompt, 0, 0).evicts());
  EXPECT_EQ(policy.PlanDecode(spec, kShape, prompt, 0, 0).capacity_slots, 102);
  spec.retention_ppm = kPpm;
  EXPECT_FALSE(policy.PlanDecode(spec, kShape, prompt, 0, 0).evicts());
}

TEST(KvPolicyTest, RefusesWhatItCannotUseAndNamesBothSides) {
  const KvPolicyRegistry registry;
  const auto refusal = [&](const KvPolicySpec& spec) {
    const Status status = registry.Find(spec.policy)->Validate(spec);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return StatusMessage(status);
  };
  KvPolicySpec spec = Spec("full");
  spec.retention_ppm = 200'000;
  EXPECT_EQ(refusal(spec), "kv_retention: policy full keeps everything; got 0.2, wanted 1");
  spec = Spec("full");
  spec.retention_tokens = 7;
  EXPECT_THAT(refusal(spec), HasSubstr("kv_retention_tokens: policy full"));
  spec = Spec("streaming");
  spec.tsp_ppm = 200'000;
  EXPECT_EQ(refusal(spec), "tsp_ratio: policy streaming runs every row; got 0.2, wanted 1");
  spec = Spec("streaming");
  spec.tsp_tokens = 9;
  EXPECT_THAT(refusal(spec), HasSubstr("tsp_tokens: policy streaming"));
  for (const char* policy : {"full", "fastkv"}) {
    spec = Spec(policy);
    spec.decode = KvDecode::kTyped;
    EXPECT_THAT(refusal(spec), HasSubstr(fmt::format("kv_decode: policy {}", policy)));
  }
  spec = Spec("fastkv");
  spec.pool_width = 8;
  EXPECT_THAT(refusal(spec), HasSubstr("kv_pool_width: got 8, wanted an odd number"));
  spec = Spec("fastkv");
  spec.retention_ppm = 0;
  EXPECT_THAT(refusal(spec), HasSubstr("kv_retention"));
}

TEST(KvPolicyTest, AcceptsWhatItCanUse) {
  const KvPolicyRegistry registry;
  KvPolicySpec spec = Spec("streaming");
  spec.retention_ppm = 100'000;
  for (const KvDecode decode : {KvDecode::kGrow, KvDecode::kTyped}) {
    spec.decode = decode;
    EXPECT_TRUE(registry.Find("streaming")->Validate(spec).ok());
  }
  spec = Spec("full");
  spec.tsp_ppm = 200'000;
  EXPECT_TRUE(registry.Find("full")->Validate(spec).ok());
}

}  // namespace
}  // namespace headroom::engine
