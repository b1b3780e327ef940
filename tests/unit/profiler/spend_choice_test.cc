#include "profiler/spend_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace headroom::profiler {
namespace {

using engine::SpendPlan;
using engine::SpendPoint;

SplitResult Split(int64_t rho, int64_t dense, double delta_nll, double seen, double unseen) {
  return {.retention_ppm = rho,
          .dense_share_ppm = dense,
          .delta_nll = delta_nll,
          .seen = seen,
          .unseen = unseen};
}

TEST(WorthOfTest, PreferencesPayDifferentlyForAnAnswer) {
  const SplitResult split = Split(1, 0, 0.10, 0.8, 0.4);
  EXPECT_DOUBLE_EQ(WorthOf("fluency", split, {}), -0.10);
  EXPECT_DOUBLE_EQ(WorthOf("balanced", split, {.balanced_nats = 0.5}), 0.5 * 0.6 - 0.10);
  EXPECT_DOUBLE_EQ(WorthOf("answers", split, {.answers_nats = 2.0}), 2.0 * 0.6 - 0.10);
}

TEST(WorthOfTest, MoreAnswersThanTheFullCacheGivesAreWorthNoMore) {
  EXPECT_DOUBLE_EQ(WorthOf("answers", Split(1, 0, 0.0, 1.0, 1.0), {}),
                   WorthOf("answers", Split(1, 0, 0.0, 1.3, 1.0), {}));
  EXPECT_LT(WorthOf("answers", Split(1, 0, 0.0, 1.3, 0.9), {}),
            WorthOf("answers", Split(1, 0, 0.0, 1.0, 1.0), {}));
}

// One answer in twenty more for a tenth of a nat: `answers` buys it, the others do not; a fifth
// more answers `balanced` buys as well.
TEST(WorthOfTest, EachPreferenceBuysWhatItsPriceAllows) {
  const auto chosen = [](const char* prefer, double seen) {
    const std::vector<SplitResult> splits = {Split(100'000, 800'000, 0.10, 0.75, 0.75),
                                             Split(100'000, 1'000'000, 0.20, seen, 0.75)};
    return ChooseSpend(prefer, splits, {}).points[0].dense_share_ppm;
  };
  EXPECT_EQ(chosen("answers", 0.85), 1'000'000);
  EXPECT_EQ(chosen("balanced", 0.85), 800'000);
  EXPECT_EQ(chosen("balanced", 0.95), 1'000'000);
  EXPECT_EQ(chosen("fluency", 0.95), 800'000);
}

TEST(WorthOfTest, NeedlesThatNobodyAskedForCountAsAnswered) {
  EXPECT_DOUBLE_EQ(WorthOf("balanced", Split(1, 0, 0.1, -1, -1), {}),
                   WorthOf("balanced", Split(1, 0, 0.1, 1, 1), {}));
}

std::vector<std::pair<int64_t, int64_t>> Points(const SpendPlan& plan) {
  std::vector<std::pair<int64_t, int64_t>> points;
  for (const SpendPoint& point : plan.points) {
    points.emplace_back(point.retention_ppm, point.dense_share_ppm);
  }
  return points;
}

TEST(ChooseSpendTest, TakesWhatIsWorthTheMostOfEachRetention) {
  const std::vector<SplitResult> splits = {
      Split(100'000, 400'000, 0.1, 1, 1), Split(100'000, 600'000, 0.2, 1, 1),
      Split(200'000, 400'000, 0.2, 1, 1), Split(200'000, 600'000, 0.1, 1, 1)};
  const SpendPlan plan = ChooseSpend("fluency", splits, {});
  EXPECT_EQ(plan.prefer, "fluency");
  EXPECT_THAT(Points(plan),
              ::testing::ElementsAre(std::pair(100'000, 400'000), std::pair(200'000, 600'000)));
}

TEST(ChooseSpendTest, GivesUpALittleAtOneRetentionForMoreAtAnother) {
  // The best of each would be .5 and .95; at .95 the rest would hold .01 of all entries, less than
  // the .05 of before. Together .95 at both loses least; the first alone would have forced .5
  // twice.
  const std::vector<SplitResult> splits = {
      Split(100'000, 500'000, 0.10, 1, 1), Split(100'000, 950'000, 0.15, 1, 1),
      Split(200'000, 500'000, 0.30, 1, 1), Split(200'000, 950'000, 0.20, 1, 1)};
  EXPECT_THAT(Points(ChooseSpend("fluency", splits, {})),
              ::testing::ElementsAre(std::pair(100'000, 950'000), std::pair(200'000, 950'000)));
}

TEST(ChooseSpendTest, KeepsDenseEntriesAsTheRetentionGrows) {
  // 0 at 200,000 would take the .08 of dense entries away again.
  const std::vector<SplitResult> splits = {
      Split(100'000, 0, 0.9, 1, 1),       Split(100'000, 400'000, 0.5, 1, 1),
      Split(100'000, 800'000, 0.1, 1, 1), Split(200'000, 0, 0.1, 1, 1),
      Split(200'000, 400'000, 0.2, 1, 1), Split(200'000, 800'000, 0.4, 1, 1)};
  EXPECT_THAT(Points(ChooseSpend("fluency", splits, {})),
              ::testing::ElementsAre(std::pair(100'000, 800'000), std::pair(200'000, 400'000)));
}

TEST(ChooseSpendTest, OfEqualPlansTheFirst) {
  const std::vector<SplitResult> splits = {Split(100'000, 200'000, 0.1, 1, 1),
                                           Split(100'000, 600'000, 0.1, 1, 1)};
  EXPECT_THAT(Points(ChooseSpend("fluency", splits, {})),
              ::testing::ElementsAre(std::pair(100'000, 200'000)));
}

TEST(ChooseSpendTest, NothingMeasuredGivesNoPoint) {
  EXPECT_TRUE(ChooseSpend("balanced", {}, {}).points.empty());
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
