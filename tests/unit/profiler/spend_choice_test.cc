#include "profiler/spend_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headroom::profiler {
namespace {

using engine::SpendPlan;
using engine::SpendPoint;

SplitResult Split(int64_t rho, int64_t dense, double delta_nll, double seen, double unseen,
                  double margin = 0.0) {
  return {.retention_ppm = rho,
          .dense_share_ppm = dense,
          .delta_nll = delta_nll,
          .seen = seen,
          .unseen = unseen,
          .margin = margin};
}

TEST(ChooseSplitTest, AnswersTakesMostAnswersThenTheLargestMargin) {
  const std::vector<SplitResult> splits = {
      Split(1, 0, 0.01, 1.0, 0.5), Split(1, 1, 0.30, 1.0, 0.9, 5.0),
      Split(1, 2, 0.20, 0.9, 1.0, 6.0), Split(1, 3, 0.10, 0.9, 0.9, 9.0)};
  EXPECT_EQ(ChooseSplit("answers", splits, {}), 2u);
}

TEST(ChooseSplitTest, FluencyTakesTheLeastLoss) {
  const std::vector<SplitResult> splits = {Split(1, 0, 0.03, 1.0, 1.0), Split(1, 1, 0.02, 0.0, 0.0),
                                           Split(1, 2, 0.02, 1.0, 1.0)};
  EXPECT_EQ(ChooseSplit("fluency", splits, {}), 1u);
}

TEST(ChooseSplitTest, BalancedTakesTheLeastLossOfThoseThatKeepTheAnswers) {
  const std::vector<SplitResult> splits = {
      Split(1, 0, 0.01, 1.0, 0.94), Split(1, 1, 0.07, 0.96, 0.95), Split(1, 2, 0.06, 1.0, 1.1),
      Split(1, 3, 0.20, 1.0, 1.0)};
  EXPECT_EQ(ChooseSplit("balanced", splits, {}), 2u);
}

TEST(ChooseSplitTest, BalancedWeighsAnswersAgainstLossWhereNoneKeepsThem) {
  // Half of the answers are worth 0.125 nats.
  EXPECT_EQ(ChooseSplit("balanced", {Split(1, 0, 0.10, 0.4, 0.0), Split(1, 1, 0.20, 0.9, 0.5)}, {}),
            1u);
  EXPECT_EQ(ChooseSplit("balanced", {Split(1, 0, 0.10, 0.4, 0.0), Split(1, 1, 0.24, 0.9, 0.5)}, {}),
            0u);
}

TEST(ChooseSplitTest, NeedlesThatNobodyAskedForCountAsAnswered) {
  EXPECT_EQ(ChooseSplit("balanced", {Split(1, 0, 0.10, -1, -1), Split(1, 1, 0.05, -1, -1)}, {}),
            1u);
}

std::vector<std::pair<int64_t, int64_t>> Points(const SpendPlan& plan) {
  std::vector<std::pair<int64_t, int64_t>> points;
  for (const SpendPoint& point : plan.points) {
    points.emplace_back(point.retention_ppm, point.dense_share_ppm);
  }
  return points;
}

TEST(ChooseSpendTest, TakesTheBestSplitOfEachRetentionThatNests) {
  // At 200,000 the best share, 0, would take dense entries away again: 0.1 * 0.8 of all are dense
  // before, so that 0.4 is the least there; at most 0.9 leaves the rest what it had.
  const std::vector<SplitResult> splits = {
      Split(100'000, 800'000, 0.1, 1, 1), Split(100'000, 200'000, 0.2, 1, 1),
      Split(200'000, 0, 0.1, 1, 1),       Split(200'000, 400'000, 0.4, 1, 1),
      Split(200'000, 900'000, 0.3, 1, 1), Split(200'000, 950'000, 0.2, 1, 1)};
  const SpendPlan plan = ChooseSpend("fluency", splits, {});
  EXPECT_EQ(plan.prefer, "fluency");
  EXPECT_THAT(Points(plan),
              ::testing::ElementsAre(std::pair(100'000, 800'000), std::pair(200'000, 900'000)));
}

TEST(ChooseSpendTest, MovesAShareWhereNoMeasuredOneNests) {
  const std::vector<SplitResult> splits = {Split(100'000, 1'000'000, 0.1, 1, 1),
                                           Split(150'000, 0, 0.1, 1, 1)};
  EXPECT_THAT(Points(ChooseSpend("fluency", splits, {})),
              ::testing::ElementsAre(std::pair(100'000, 1'000'000), std::pair(150'000, 666'667)));
}

TEST(ChooseSpendTest, ReadsNoSplitWithLocalQuotas) {
  std::vector<SplitResult> splits = {Split(100'000, 500'000, 0.2, 1, 1),
                                     Split(100'000, 700'000, 0.1, 1, 1)};
  splits[1].local_share_ppm = 250'000;
  EXPECT_THAT(Points(ChooseSpend("balanced", splits, {})),
              ::testing::ElementsAre(std::pair(100'000, 500'000)));
}

}  // namespace
}  // namespace headroom::profiler
