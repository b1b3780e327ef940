#include "profiler/evaluation/token_metrics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace headroom::profiler {
namespace {

// Logits whose softmax is known: log 1, log 2, log 5 give 1/8, 2/8, 5/8; any constant may be added.
const std::vector<float> kEighths = {std::log(1.0f) + 3.0f, std::log(2.0f) + 3.0f,
                                     std::log(5.0f) + 3.0f};
const std::vector<float> kOther = {std::log(4.0f), std::log(3.0f), std::log(1.0f)};
constexpr double kFloatError = 1e-6;  // logits are floats

TEST(TokenMetricsTest, NllIsTheLogOfTheProbability) {
  EXPECT_NEAR(TokenNll(kEighths, 0), std::log(8.0), kFloatError);
  EXPECT_NEAR(TokenNll(kEighths, 2), std::log(8.0 / 5.0), kFloatError);
}

TEST(TokenMetricsTest, LargeLogitsDoNotOverflow) {
  const std::vector<float> logits = {10'000.0f, 9'999.0f, -10'000.0f};
  EXPECT_NEAR(TokenNll(logits, 0), std::log1p(std::exp(-1.0)), 1e-9);
  EXPECT_NEAR(TokenNll(logits, 2), 20'000.0 + std::log1p(std::exp(-1.0)), 1e-6);
}

TEST(TokenMetricsTest, DivergenceFollowsItsDefinition) {
  const TokenScore score = CompareLogits(kEighths, kOther, 1);
  const double expected =
      1.0 / 8 * std::log(1.0 / 4) + 2.0 / 8 * std::log(2.0 / 3) + 5.0 / 8 * std::log(5.0 / 1);
  EXPECT_NEAR(score.kl, expected, kFloatError);
  EXPECT_NEAR(score.nll, std::log(8.0 / 3.0), kFloatError);
  EXPECT_FALSE(score.top1_agrees);
}

// Not KL(compressed || full): the two directions differ here.
TEST(TokenMetricsTest, DivergenceIsTakenUnderTheFullCache) {
  EXPECT_GT(std::abs(CompareLogits(kEighths, kOther, 0).kl - CompareLogits(kOther, kEighths, 0).kl),
            0.01);
}

TEST(TokenMetricsTest, EqualLogitsDivergeByExactlyZero) {
  const TokenScore score = CompareLogits(kEighths, kEighths, 1);
  EXPECT_EQ(score.kl, 0.0);
  EXPECT_EQ(score.nll, TokenNll(kEighths, 1));
  EXPECT_TRUE(score.top1_agrees);
}

TEST(TokenMetricsTest, TheLowestOfEqualTopTokensCounts) {
  EXPECT_EQ(TopToken(std::vector<float>{1.0f, 4.0f, 4.0f, 0.0f}), 1);
}

TEST(KeyTokensTest, AreLikelyInFullAndUnlikelyInShortContext) {
  const std::vector<double> full = {0.5, 0.5, 2.5, 1.99, 0.5, 2.0};
  const std::vector<double> brief = {3.0, 2.4, 9.0, 4.0, 2.5, 9.0};
  // Gains 2.5, 1.9, 6.5, 2.01, exactly 2, 7; the third and the last are not likely in full.
  EXPECT_EQ(KeyTokens(full, brief, {}), (std::vector<uint8_t>{1, 0, 0, 1, 0, 0}));
}

TEST(QuantileTest, IsTheNearestRank) {
  std::vector<double> values;
  for (int i = 200; i >= 1; --i) {
    values.push_back(i);
  }
  EXPECT_EQ(Quantile(values, 0.99), 198.0);
  EXPECT_EQ(Quantile(values, 1.0), 200.0);
  EXPECT_EQ(Quantile(values, 0.001), 1.0);
  EXPECT_EQ(Quantile({7.0}, 0.99), 7.0);
  EXPECT_EQ(Quantile({}, 0.5), 0.0);
}

}  // namespace
}  // namespace headroom::profiler
