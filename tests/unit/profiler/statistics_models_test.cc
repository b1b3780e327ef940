// Statistics and probes of the hand-built model, of which it is known what every head attends to.
#include <gtest/gtest.h>

#include <algorithm>

#include "profiler/attention_statistics.h"
#include "profiler/ladder.h"
#include "profiler/probes.h"
#include "tests/support/hand_built_model.h"
#include "tests/unit/profiler/profiled_model.h"

namespace headroom::profiler {
namespace {

using engine::HeadType;
using headroom::testing::kHandBuiltKvHeads;
using headroom::testing::kHandBuiltLayers;

// Long enough that no window of the ladder covers late rows.
constexpr int32_t kTokens = 2400;
constexpr int32_t kRecent = 16;  // fewer than what the local heads look at
constexpr int32_t kTheta = 950'000;

class HandBuiltStatisticsTest : public ::testing::Test {
 protected:
  HandBuiltStatisticsTest()
      : model_(headroom::testing::MakeHandBuiltModel(),
               *kernels::CreateCpuBackend({.num_threads = 2}), 512,
               headroom::testing::HandBuiltClasses()),
        reader_(model_.MakeReader(kTokens)) {
    options_.ladder = DefaultLadder(300'000);
    options_.recent_tokens = kRecent;
    statistics_ = *AttentionStatistics::Create(*reader_, options_);
    record_ =
        statistics_->Measure({headroom::testing::HandBuiltPrompt(kTokens, 1), kTokens}, "x", 1.0);
  }

  // Mean kept mass of a head's neediest query head.
  int32_t Mass(int32_t head, size_t rung) const {
    const size_t num_rungs = options_.ladder.rungs.size();
    int32_t least = 1'000'000;
    for (int32_t query_head = 2 * head; query_head < 2 * head + 2; ++query_head) {
      least = std::min(least, record_.mass_ppm[static_cast<size_t>(query_head) * num_rungs + rung]);
    }
    return least;
  }

  ProfiledModel model_;
  std::unique_ptr<PromptReader> reader_;
  StatisticsOptions options_;
  std::unique_ptr<AttentionStatistics> statistics_;
  PromptRecord record_;
};

TEST_F(HandBuiltStatisticsTest, TheCheapestRungThatHoldsEachHeadIsOfItsType) {
  const std::vector<HeadType> types = headroom::testing::HandBuiltTypes();
  const ReferenceLength reference = {.num_tokens = kTokens,
                                     .num_special = record_.num_special,
                                     .num_punctuation = record_.num_punctuation};
  const std::vector<int64_t> entries =
      LadderEntries(options_.ladder, reference, options_.recent_tokens);
  for (int32_t head = 0; head < kHandBuiltLayers * kHandBuiltKvHeads; ++head) {
    std::vector<uint8_t> passes;
    for (size_t rung = 0; rung < options_.ladder.rungs.size(); ++rung) {
      passes.push_back(Mass(head, rung) >= kTheta ? 1 : 0);
    }
    const int32_t rung = CheapestRung(passes, entries, kTokens);
    const HeadType type = TypeOfRung(options_.ladder.rungs[static_cast<size_t>(rung)]);
    // Nothing in this prompt has to be copied: the induction head rests on BOS until probed.
    const bool is_induction = head / kHandBuiltKvHeads == 1 && head % kHandBuiltKvHeads == 0;
    EXPECT_EQ(
        engine::HeadTypeName(type),
        engine::HeadTypeName(is_induction ? HeadType::kSpecial : types[static_cast<size_t>(head)]))
        << "layer " << head / kHandBuiltKvHeads << " KV head " << head % kHandBuiltKvHeads;
  }
}

// Layer 2, KV head 1, query head 0 looks at all tokens alike.
TEST_F(HandBuiltStatisticsTest, TheUniformHeadKeepsTheShareOfItsSlots) {
  const size_t query_head = 2 * 4 + 2;
  const RowSets rows = SplitRows(kTokens);
  for (size_t rung = 0; rung < options_.ladder.rungs.size(); ++rung) {
    const Rung& each = options_.ladder.rungs[rung];
    if (each.punctuation || each.heavy_ppm > 0) {
      continue;
    }
    const int32_t window = std::max(
        {kRecent, each.window, static_cast<int32_t>(each.window_ppm * kTokens / 1'000'000)});
    double expected = 0.0;
    for (int32_t row = rows.eval_begin; row < kTokens; ++row) {
      const int32_t kept = std::min(window, row + 1) + std::min(4, std::max(row + 1 - window, 0));
      expected += static_cast<double>(kept) / (row + 1) / (kTokens - rows.eval_begin);
    }
    EXPECT_NEAR(record_.mass_ppm[query_head * options_.ladder.rungs.size() + rung], 1e6 * expected,
                20.0)  // f32 of a probability
        << each.name;
  }
}

TEST_F(HandBuiltStatisticsTest, TopTokensFreezeWhereTheModelDoes) {
  ASSERT_EQ(record_.overlap_ppm.size(), static_cast<size_t>(kHandBuiltLayers));
  for (int32_t layer = 0; layer < kHandBuiltLayers; ++layer) {
    const int32_t overlap = record_.overlap_ppm[static_cast<size_t>(layer)];
    if (layer >= headroom::testing::kHandBuiltFreezeLayer) {
      EXPECT_GT(overlap, 900'000) << layer;
    } else {
      EXPECT_LT(overlap, 900'000) << layer;
    }
  }
}

TEST_F(HandBuiltStatisticsTest, ProbesFindTheInductionHeadThatMassesCannotSee) {
  int32_t answer = 0;
  int32_t needle = 0;
  NeedlePrompt prompt;
  prompt.id = "hand-built";
  prompt.ids = headroom::testing::HandBuiltQuestion(kTokens, 3, &answer, &needle);
  prompt.split = static_cast<int32_t>(prompt.ids.size()) - 1;
  prompt.answer = {answer};
  const auto probe = MakeIdProbe(prompt);
  ASSERT_TRUE(probe.ok()) << StatusMessage(probe.status());
  const auto reader = model_.MakeReader(kTokens + 8);
  const ProbeRecord record = MeasureProbe(*reader, *probe);
  for (size_t head = 0; head < record.copy_ppm.size(); ++head) {
    const bool is_induction = head == 4 * 1 + 1;  // layer 1, KV head 0, query head 1
    EXPECT_EQ(record.copy_ppm[head] > 500'000, is_induction)
        << head << ": " << record.copy_ppm[head];
  }
}

}  // namespace
}  // namespace headroom::profiler
