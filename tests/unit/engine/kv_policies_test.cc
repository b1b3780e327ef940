// What each policy plans, in numbers: entries, pools, phases, rungs, and what scoring reads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "engine/kv/column_sums.h"
#include "engine/kv/policy.h"
#include "engine/kv/prefill_plan.h"

namespace headroom::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

KvPolicySpec Spec(const std::string& policy, int64_t retention_ppm = kPpm) {
  KvPolicySpec spec;
  spec.policy = policy;
  spec.retention_ppm = retention_ppm;
  spec.min_prompt = 0;
  spec.tsp_min_prompt = 0;
  return spec;
}

KvModelShape Shape(int32_t num_layers) {
  return {.num_layers = num_layers, .num_kv_heads = 2, .tsp_layer = 1};
}

PrefillPlan Plan(const KvPolicySpec& spec, int32_t num_tokens, int32_t num_layers = 4) {
  const KvPolicyRegistry registry;
  return MakePrefillPlan(*registry.Find(spec.policy), spec, Shape(num_layers),
                         {.num_tokens = num_tokens, .content_end = num_tokens});
}

std::vector<int32_t> KeptByLayer(const PrefillPlan& plan) {
  std::vector<int32_t> kept;
  for (size_t layer = 0; layer < plan.layers.size(); ++layer) {
    kept.push_back(KeptSlots(plan, static_cast<int32_t>(layer), 0));
  }
  return kept;
}

TEST(PoliciesTest, ARatioOfOneLeavesOnePhaseThatKeepsEverything) {
  for (const char* policy : {"streaming", "h2o", "scissorhands", "snapkv", "adakv", "pyramidinfer",
                             "gemfilter", "fastkv", "random"}) {
    const PrefillPlan plan = Plan(Spec(policy), 1000);
    EXPECT_EQ(plan.phases.size(), 1u) << policy;
    EXPECT_EQ(plan.needs.window_rows, 0) << policy;
    EXPECT_THAT(plan.needs.columns, IsEmpty()) << policy;
    for (const LayerPlan& layer : plan.layers) {
      EXPECT_TRUE(layer.keep_all) << policy;
    }
  }
}

TEST(PoliciesTest, ShortPromptsAreLeftWholeAndSaySo) {
  for (const char* policy : {"h2o", "scissorhands", "snapkv", "adakv", "pyramidinfer", "gemfilter",
                             "fastgen", "random"}) {
    KvPolicySpec spec = Spec(policy, std::string(policy) == "fastgen" ? kPpm : 200'000);
    spec.min_prompt = 512;
    const PrefillPlan plan = Plan(spec, 511);
    EXPECT_EQ(KeptByLayer(plan), (std::vector<int32_t>(4, 511))) << policy;
    EXPECT_THAT(plan.reasons, ElementsAre("short_prompt")) << policy;
    EXPECT_THAT(Plan(spec, 512).reasons, IsEmpty()) << policy;
  }
}

TEST(PoliciesTest, AFloorIsNamedAlsoWhereItIsTheWholePrompt) {
  for (const char* policy : {"streaming", "h2o", "scissorhands", "snapkv", "adakv", "pyramidinfer",
                             "gemfilter", "fastkv", "random"}) {
    EXPECT_THAT(Plan(Spec(policy, 10'000), 4).reasons, ElementsAre("floor")) << policy;
    EXPECT_THAT(Plan(Spec(policy, 10'000), 100).reasons, ElementsAre("floor")) << policy;
  }
}

TEST(PoliciesTest, TypedDecodeIsRefusedWhereNothingIsEvicted) {
  const KvPolicyRegistry registry;
  for (const char* policy : {"snapkv", "adakv", "pyramidinfer", "gemfilter", "random"}) {
    KvPolicySpec spec = Spec(policy, 200'000);
    spec.decode = KvDecode::kTyped;
    EXPECT_EQ(registry.Find(policy)->Validate(spec).code(), StatusCode::kInvalidArgument);
  }
}

TEST(PyramidInferPolicyTest, TheMeanOverLayersIsExactAndLayersFallInPairs) {
  for (const int32_t num_layers : {2, 3, 4, 7, 30, 32}) {
    for (const int64_t retention_ppm : {100'000, 333'333, 500'000, 700'000, 999'000}) {
      const PrefillPlan plan = Plan(Spec("pyramidinfer", retention_ppm), 997, num_layers);
      const std::vector<int32_t> kept = KeptByLayer(plan);
      const int64_t mean = retention_ppm * 997 / 1'000'000;
      EXPECT_EQ(std::accumulate(kept.begin(), kept.end(), int64_t{0}), mean * num_layers);
      EXPECT_TRUE(std::is_sorted(kept.rbegin(), kept.rend()));
      for (size_t layer = 0; layer < kept.size(); ++layer) {
        EXPECT_EQ(kept[layer] + kept[kept.size() - 1 - layer], 2 * mean);
      }
      EXPECT_LE(kept.front(), 997);
    }
  }
  // a = min(0.75, (1 - rho) / rho).
  EXPECT_THAT(KeptByLayer(Plan(Spec("pyramidinfer", 200'000), 1000, 2)), ElementsAre(350, 50));
  EXPECT_THAT(KeptByLayer(Plan(Spec("pyramidinfer", 800'000), 1000, 3)),
              ElementsAre(1000, 800, 600));
}

TEST(PyramidInferPolicyTest, RowsDropFromAQuarterOfTheDepthOn) {
  const PrefillPlan plan = Plan(Spec("pyramidinfer", 200'000), 1000, 8);
  EXPECT_EQ(plan.phases.size(), 7u);  // layers 2 to 7 drop
  EXPECT_EQ(plan.phases[0].layer_end, 2);
  EXPECT_EQ(plan.phase_rows[0], 1000);
  const std::vector<int32_t> kept = KeptByLayer(plan);
  for (size_t phase = 1; phase < plan.phases.size(); ++phase) {
    EXPECT_EQ(plan.phases[phase].layer_begin, static_cast<int32_t>(phase) + 1);
    EXPECT_EQ(plan.phase_rows[phase], kept[phase + 1]);
  }
  // A layer that drops rows stores those of the layer below.
  EXPECT_EQ(plan.layer_slots[2], 1000);
  EXPECT_EQ(plan.layer_slots[3], kept[2]);
}

TEST(PyramidInferPolicyTest, FloorsHoldInDeepLayers) {
  const PrefillPlan plan = Plan(Spec("pyramidinfer", 20'000), 1000, 8);
  EXPECT_EQ(KeptByLayer(plan).back(), 12);  // 4 sinks and 8 window rows
}

TEST(GemFilterPolicyTest, ReadsUpToTheFilterLayerAndStartsAfresh) {
  const PrefillPlan plan = Plan(Spec("gemfilter", 290'000), 100, 32);
  ASSERT_EQ(plan.phases.size(), 2u);
  EXPECT_TRUE(plan.phases[0].selects_rows && plan.phases[0].restarts);
  EXPECT_EQ(plan.phases[0].layer_end, 13);  // as the paper for 32 layers
  EXPECT_EQ(plan.phases[1].layer_begin, 0);
  EXPECT_EQ(plan.phases[1].layer_end, 32);
  EXPECT_EQ(plan.phase_rows[1], 29);
  EXPECT_EQ(plan.needs.window_rows, 1);
  EXPECT_EQ(plan.needs.window_kind, kernels::WindowScoreKind::kDot);
  EXPECT_EQ(KeptByLayer(plan), (std::vector<int32_t>(32, 29)));
  EXPECT_EQ(Plan(Spec("gemfilter", 290'000), 100, 4).phases[0].layer_end, 0);
  KvPolicySpec spec = Spec("gemfilter", 290'000);
  spec.options.filter_layer = 3;
  EXPECT_EQ(Plan(spec, 100, 4).phases[0].layer_end, 3);
}

TEST(GemFilterPolicyTest, RefusesAFilterLayerThatTheModelLacks) {
  const KvPolicyRegistry registry;
  KvPolicySpec spec = Spec("gemfilter", 290'000);
  spec.options.filter_layer = 4;
  EXPECT_TRUE(registry.Find("gemfilter")->ValidateShape(spec, Shape(5)).ok());
  EXPECT_EQ(StatusMessage(registry.Find("gemfilter")->ValidateShape(spec, Shape(4))),
            "kv_options.filter_layer: got 4, wanted 0 to 3");
}

TEST(GemFilterPolicyTest, PrefillHoldsTheFirstReadingOrTheSecondNeverBoth) {
  // 1,600 slots of 3 layers and 2 heads; then 160 of 8 layers.
  KvPolicySpec spec = Spec("gemfilter", 100'000);
  spec.options.filter_layer = 2;
  EXPECT_EQ(PrefillPeakPages(Plan(spec, 1600, 8), Shape(8)), 3 * 2 * 100);
  spec.options.filter_layer = 0;
  EXPECT_EQ(PrefillPeakPages(Plan(spec, 1600, 32), Shape(32)), 32 * 2 * 10);
}

TEST(AdaKvPolicyTest, PlansOnePoolPerLayerWithASafePart) {
  KvPolicySpec spec = Spec("adakv", 290'000);
  const PrefillPlan plan = Plan(spec, 100);
  for (const LayerPlan& layer : plan.layers) {
    EXPECT_EQ(layer.pool, KvPool::kLayer);
    EXPECT_EQ(layer.pool_entries, 58);
    EXPECT_EQ(layer.heads[0].safe_entries, 5);  // floor(0.2 * 29)
    EXPECT_EQ(layer.heads[0].recent_slots, 8);
  }
  spec.options.alpha_ppm = 0;
  EXPECT_EQ(Plan(spec, 100).layers[0].heads[0].safe_entries, 1);
}

TEST(AdaKvPolicyTest, PagesAreBoundedByThePoolNotByTheLongestHead) {
  const KvPolicyRegistry registry;
  const KvPolicySpec spec = Spec("adakv", 100'000);
  const KvModelShape shape = {.num_layers = 1, .num_kv_heads = 8, .tsp_layer = 0};
  const KvFootprint footprint =
      registry.Find("adakv")->Footprint(spec, shape, {.num_tokens = 1600, .content_end = 1600}, 32);
  // 8 * 160 slots, 8 * 32 more, and at most 15 empty slots in the last page of each head.
  EXPECT_EQ(footprint.steady_pages, (1280 + 256 + 8 * 15) / 16);
  EXPECT_EQ(footprint.prefill_peak_pages, 8 * 100 + (1280 + 8 * 15) / 16);
}

TEST(H2oPolicyTest, HalvesTheBudgetAndWatchesAllRows) {
  KvPolicySpec spec = Spec("h2o", 300'000);
  const PrefillPlan plan = Plan(spec, 1000);
  EXPECT_EQ(plan.layers[0].heads[0].num_entries, 300);
  EXPECT_EQ(plan.layers[0].heads[0].recent_slots, 150);
  EXPECT_EQ(plan.layers[0].heads[0].sink_slots, 4);
  EXPECT_EQ(plan.layers[0].heads[0].score, ScoreKind::kColumnSum);
  ASSERT_EQ(plan.needs.columns.size(), 1u);
  EXPECT_EQ(plan.needs.columns[0].last_rows, 1000);
  spec.options.count_normalised = true;
  spec.options.recent_share_ppm = 0;
  spec.sink_tokens = 0;
  EXPECT_EQ(Plan(spec, 1000).layers[0].heads[0].score, ScoreKind::kColumnMean);
  EXPECT_EQ(Plan(spec, 1000).layers[0].heads[0].recent_slots, 0);
  spec.retention_ppm = 1;
  EXPECT_EQ(Plan(spec, 1000).layers[0].heads[0].num_entries, 1);
  EXPECT_THAT(Plan(spec, 1000).reasons, ElementsAre("floor"));
}

TEST(ScissorhandsPolicyTest, CountsOverTheLastFourHundredRows) {
  const PrefillPlan plan = Plan(Spec("scissorhands", 300'000), 1000);
  EXPECT_EQ(plan.layers[0].heads[0].recent_slots, 10);
  ASSERT_EQ(plan.needs.columns.size(), 1u);
  EXPECT_EQ(plan.needs.columns[0].last_rows, 400);
  EXPECT_EQ(plan.needs.columns[0].kind, kernels::ColumnKind::kAboveMean);
  EXPECT_EQ(Plan(Spec("scissorhands", 300'000), 99).needs.columns[0].last_rows, 99);
}

TEST(FastGenPolicyTest, ClimbsFourRungsBelowFull) {
  KvPolicySpec spec = Spec("fastgen");
  spec.options.fraction_ppm = 100'000;
  spec.recovery_ppm = 900'000;
  const PrefillPlan plan = Plan(spec, 255);
  const HeadPlan& head = plan.layers[1].heads[1];
  EXPECT_EQ(head.mass_target_ppm, 900'000);
  EXPECT_EQ(head.num_entries, 255);  // until scores are known
  ASSERT_EQ(head.rungs.size(), 4u);
  EXPECT_TRUE(head.rungs[0].special && !head.rungs[0].punctuation);
  EXPECT_EQ(head.rungs[1].heavy_entries, 0);
  EXPECT_TRUE(head.rungs[1].punctuation);
  EXPECT_EQ(head.rungs[2].heavy_entries, 26);  // ceil
  EXPECT_EQ(head.rungs[2].local_slots, 0);
  EXPECT_EQ(head.rungs[3].local_slots, 25);  // floor
}

TEST(FastGenPolicyTest, MeasuresOnRowsThatDoNotChoose) {
  KvPolicySpec spec = Spec("fastgen");
  const ScoreNeeds needs = Plan(spec, 1000).needs;
  EXPECT_EQ(needs.window_rows, 128);
  ASSERT_EQ(needs.columns.size(), 2u);
  EXPECT_EQ(needs.columns[0].rows_of_four & needs.columns[1].rows_of_four, 0);
  EXPECT_EQ(NumObservedRows(needs.columns[0], 1000), 96);
  EXPECT_EQ(NumObservedRows(needs.columns[1], 1000), 32);
  EXPECT_TRUE(needs.columns[1].per_query_head);
  EXPECT_EQ(needs.columns[1].near_slots, 300);
  spec.options.all_rows = true;
  const ScoreNeeds all = Plan(spec, 1000).needs;
  EXPECT_EQ(all.window_rows, 0);
  ASSERT_EQ(all.columns.size(), 1u);
  EXPECT_EQ(NumObservedRows(all.columns[0], 1000), 1000);
  for (const int32_t num_tokens : {1, 2, 3}) {
    spec.options.all_rows = false;
    EXPECT_EQ(NumObservedRows(Plan(spec, num_tokens).needs.columns.back(), num_tokens), num_tokens);
  }
}

TEST(FastGenPolicyTest, RefusesARetention) {
  const KvPolicyRegistry registry;
  EXPECT_FALSE(registry.Find("fastgen")->Validate(Spec("fastgen", 200'000)).ok());
  EXPECT_TRUE(registry.Find("fastgen")->Validate(Spec("fastgen")).ok());
}

TEST(RandomPolicyTest, DrawsTheBudgetAnewForEveryLayerAndHeadAndTheSameForASeed) {
  KvPolicySpec spec = Spec("random", 200'000);
  const PrefillPlan plan = Plan(spec, 1000);
  EXPECT_EQ(plan.layers[0].heads[0].num_entries, 200);
  EXPECT_EQ(plan.layers[0].heads[0].keep_slots.size(), 188u);
  EXPECT_NE(plan.layers[0].heads[0].keep_slots, plan.layers[0].heads[1].keep_slots);
  EXPECT_NE(plan.layers[0].heads[0].keep_slots, plan.layers[1].heads[0].keep_slots);
  EXPECT_EQ(plan.layers[0].heads[0].keep_slots, Plan(spec, 1000).layers[0].heads[0].keep_slots);
  spec.options.seed = 1;
  EXPECT_NE(plan.layers[0].heads[0].keep_slots, Plan(spec, 1000).layers[0].heads[0].keep_slots);
}

}  // namespace
}  // namespace headroom::engine
