#include "profiler/tsp_choice.h"

#include <gtest/gtest.h>

namespace headroom::profiler {
namespace {

using engine::HeadEntry;
using engine::HeadType;

std::vector<HeadEntry> Heads(const std::vector<int64_t>& copy_by_layer) {
  std::vector<HeadEntry> heads;
  for (const int64_t copy : copy_by_layer) {
    HeadEntry head;
    head.type = copy > 0 ? HeadType::kDense : HeadType::kLocal;
    head.copy_ppm = copy;
    heads.push_back(head);
  }
  return heads;
}

// 30 layers at tau .2: shares that follow from (T + 1 + .2 (29 - T)) / 30.
TEST(TspChoiceTest, RowLayersFollowFromTheCut) {
  EXPECT_EQ(RowLayersPpm(14, 30, 200'000), 600'000);
  EXPECT_EQ(RowLayersPpm(23, 30, 200'000), 840'000);
  EXPECT_EQ(RowLayersPpm(14, 30, 400'000), 700'000);
  EXPECT_EQ(RowLayersPpm(29, 30, 200'000), 1'000'000);
}

TEST(TspChoiceTest, CutsWhereTheTopTokensFreeze) {
  const std::vector<int64_t> overlap = {300'000, 400'000, 950'000, 990'000,
                                        980'000, 970'000, 990'000, 1'000'000};
  const auto choice = ChooseTspLayer(overlap, Heads({0, 0, 0, 0, 0, 900'000, 0, 0}), 8);
  EXPECT_EQ(choice.layer, 2);
  EXPECT_EQ(choice.overlap_ppm, overlap);
}

TEST(TspChoiceTest, ALateThawIsNotFrozen) {
  const std::vector<int64_t> overlap = {950'000, 950'000, 950'000, 500'000, 950'000, 1'000'000};
  EXPECT_EQ(ChooseTspLayer(overlap, Heads({0, 0, 0, 0, 0, 0}), 6).layer, 4);
}

TEST(TspChoiceTest, WithoutFreezingTheProbedHeadsDecide) {
  const std::vector<int64_t> overlap(8, 500'000);
  // Nine tenths of the score lie at or below layer 5.
  const auto choice =
      ChooseTspLayer(overlap, Heads({0, 300'000, 0, 300'000, 0, 300'000, 0, 100'000}), 8);
  EXPECT_EQ(choice.layer, 5);
  for (const auto& candidate : choice.candidates) {
    EXPECT_LT(candidate.layer, 7);  // a cut at the last layer is none
    EXPECT_FALSE(candidate.validated);
  }
  ASSERT_GE(choice.candidates.size(), 3u);
  for (size_t i = 1; i < choice.candidates.size(); ++i) {
    EXPECT_LT(choice.candidates[i - 1].layer, choice.candidates[i].layer);
    EXPECT_GE(choice.candidates[i - 1].probe_above_ppm, choice.candidates[i].probe_above_ppm);
  }
}

TEST(TspChoiceTest, WithoutDataTheDefaultStays) {
  EXPECT_EQ(ChooseTspLayer({}, Heads({0, 0, 0, 0, 0, 0, 0, 0}), 8).layer, 3);
  EXPECT_EQ(ChooseTspLayer({}, Heads({0}), 1).layer, 0);
}

engine::TspCandidate Measured(int32_t layer, int64_t seen, int64_t loss) {
  engine::TspCandidate candidate;
  candidate.layer = layer;
  candidate.seen_ppm = seen;
  candidate.delta_nll_ppm = loss;
  candidate.validated = true;
  return candidate;
}

// The measured curve of a small model: 14 loses a third of the answers, 18 none.
TEST(TspChoiceTest, TheSmallestLayerThatAnswersWins) {
  engine::TspChoice choice;
  choice.layer = 23;
  choice.candidates = {Measured(14, 666'667, 150'000), Measured(18, 1'000'000, 120'000),
                       Measured(23, 1'000'000, 60'000)};
  ChooseByLoss(1'000'000, {}, &choice);
  EXPECT_EQ(choice.layer, 18);
  choice.candidates[1].delta_nll_ppm = 400'000;  // beyond the tolerance of .1
  ChooseByLoss(1'000'000, {}, &choice);
  EXPECT_EQ(choice.layer, 23);
}

// Three layers that lose nothing: the first with at most half of the probe score above it; where
// only those with more are good enough, one of these.
TEST(TspChoiceTest, LayersBelowMostOfTheProbeScoreComeLast) {
  engine::TspChoice choice;
  choice.candidates = {Measured(14, 1'000'000, 90'000), Measured(18, 1'000'000, 120'000),
                       Measured(23, 1'000'000, 60'000)};
  choice.candidates[0].probe_above_ppm = 690'000;
  choice.candidates[1].probe_above_ppm = 500'000;
  ChooseByLoss(1'000'000, {}, &choice);
  EXPECT_EQ(choice.layer, 18);
  choice.candidates[1].probe_above_ppm = 500'001;
  choice.candidates[2].seen_ppm = 900'000;
  ChooseByLoss(1'000'000, {}, &choice);
  EXPECT_EQ(choice.layer, 14);
}

// A model that answers no needle with its full cache has no shares (-1) to lose.
TEST(TspChoiceTest, WithoutSharesTheSmallestLayerWithinTheToleranceWins) {
  engine::TspChoice choice;
  choice.candidates = {Measured(3, -1, 150'000), Measured(5, -1, 120'000),
                       Measured(6, -1, 60'000)};
  ChooseByLoss(1'000'000, {}, &choice);
  EXPECT_EQ(choice.layer, 3);
}

TEST(TspChoiceTest, WhenNoneAnswersEnoughTheBestStays) {
  engine::TspChoice choice;
  choice.candidates = {Measured(3, 100'000, 10'000), Measured(5, 600'000, 20'000),
                       Measured(6, 600'000, 15'000)};
  ChooseByLoss(1'000'000, {}, &choice);
  EXPECT_EQ(choice.layer, 6);
  choice.candidates[2].validated = false;
  ChooseByLoss(1'000'000, {}, &choice);
  EXPECT_EQ(choice.layer, 5);
}

}  // namespace
}  // namespace headroom::profiler
