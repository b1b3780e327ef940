#include "profiler/evaluation/bootstrap.h"

#include <gtest/gtest.h>

#include <cmath>

namespace headroom::profiler {
namespace {

std::vector<std::string> OneStratum(size_t count) { return std::vector<std::string>(count, "s"); }

// The smallest k with P(Binomial(n, p) <= k) >= share, by the recurrence of its terms.
int BinomialQuantile(int n, double p, double share) {
  double term = std::pow(1.0 - p, n);
  double sum = term;
  int k = 0;
  while (sum < share) {
    term *= static_cast<double>(n - k) / (k + 1) * p / (1.0 - p);
    sum += term;
    ++k;
  }
  return k;
}

// A resampled mean of n zeros and ones, k of them ones, is Binomial(n, k / n) / n.
TEST(BootstrapTest, IntervalOfAShareIsTheBinomialOne) {
  const int n = 40;
  for (const int ones : {4, 20, 33}) {
    std::vector<double> values(n, 0.0);
    std::fill(values.begin(), values.begin() + ones, 1.0);
    const auto interval = Bootstrap(OneStratum(n), 10'000, 3).Mean(values);
    ASSERT_TRUE(interval.has_value());
    const double p = static_cast<double>(ones) / n;
    EXPECT_DOUBLE_EQ(interval->value, p);
    // One step of 1 / n: 10,000 draws may fall on either side of a quantile near a step.
    EXPECT_NEAR(interval->low, static_cast<double>(BinomialQuantile(n, p, 0.025)) / n, 1.01 / n);
    EXPECT_NEAR(interval->high, static_cast<double>(BinomialQuantile(n, p, 0.975)) / n, 1.01 / n);
  }
}

// For many units the interval is the normal one with the population's standard error.
TEST(BootstrapTest, IntervalOfAMeanApproachesTheNormalOne) {
  std::vector<double> values;
  double mean = 0.0;
  for (int i = 0; i < 200; ++i) {
    values.push_back(std::sin(i * 1.7) + 0.01 * i);
    mean += values.back() / 200.0;
  }
  double variance = 0.0;
  for (const double value : values) {
    variance += (value - mean) * (value - mean) / 200.0;
  }
  const double half = 1.959964 * std::sqrt(variance / 200.0);
  const auto interval = Bootstrap(OneStratum(200), 10'000, 1).Mean(values);
  EXPECT_NEAR(interval->value, mean, 1e-12);
  // A 2.5 % quantile of 10,000 draws has a standard error of 0.027 standard errors of the mean.
  EXPECT_NEAR(interval->low, mean - half, 0.08 * half);
  EXPECT_NEAR(interval->high, mean + half, 0.08 * half);
}

TEST(BootstrapTest, EqualDifferencesHaveAnIntervalWithoutWidth) {
  const auto interval = Bootstrap(OneStratum(7), 1000, 1).Mean(std::vector<double>(7, 0.25));
  EXPECT_EQ(interval->low, 0.25);
  EXPECT_EQ(interval->high, 0.25);
}

TEST(BootstrapTest, TheSameSeedDrawsTheSameAndAnotherDoesNot) {
  const std::vector<double> values = {0.1, 0.9, 0.3, 1.7, 0.2, 0.8, 1.1};
  const auto a = Bootstrap(OneStratum(7), 500, 5).Mean(values);
  const auto b = Bootstrap(OneStratum(7), 500, 5).Mean(values);
  const auto c = Bootstrap(OneStratum(7), 500, 6).Mean(values);
  EXPECT_EQ(a->low, b->low);
  EXPECT_EQ(a->high, b->high);
  EXPECT_NE(a->low, c->low);
}

// Differences between strata are no variance: with a constant in each, every resample is equal.
TEST(BootstrapTest, DrawsWithinStrata) {
  const std::vector<std::string> strata = {"a", "b", "a", "b", "a", "b"};
  const auto interval = Bootstrap(strata, 200, 1).Mean(std::vector<double>{1, 5, 1, 5, 1, 5});
  EXPECT_EQ(interval->low, 3.0);
  EXPECT_EQ(interval->high, 3.0);
}

TEST(BootstrapTest, PoolsStrataTooSmallToVary) {
  const auto interval = Bootstrap({"a", "b", "c"}, 2000, 1).Mean(std::vector<double>{0, 1, 2});
  EXPECT_LT(interval->low, 0.5);
  EXPECT_GT(interval->high, 1.5);
}

// Ratio of sums, not mean of ratios; units without a denominator do not count.
TEST(BootstrapTest, RatioWeighsUnitsByTheirDenominator) {
  const Bootstrap bootstrap(OneStratum(3), 2000, 1);
  const auto ratio = bootstrap.Ratio(std::vector<double>{3, 1, 0}, std::vector<double>{6, 1, 0});
  EXPECT_DOUBLE_EQ(ratio->value, 4.0 / 7.0);
  EXPECT_GE(ratio->low, 0.5);
  EXPECT_LE(ratio->high, 1.0);
  EXPECT_FALSE(
      bootstrap.Ratio(std::vector<double>{0, 0, 0}, std::vector<double>{0, 0, 0}).has_value());
}

// Tail sums of Pascal's triangle: n = 10, k = 1: 2 * (1 + 10) / 1024.
TEST(McNemarExactTest, IsTheDoubledBinomialTail) {
  EXPECT_NEAR(McNemarExact(1, 9), 22.0 / 1024.0, 1e-12);
  EXPECT_NEAR(McNemarExact(9, 1), 22.0 / 1024.0, 1e-12);
  EXPECT_NEAR(McNemarExact(0, 5), 2.0 / 32.0, 1e-12);
  EXPECT_EQ(McNemarExact(3, 3), 1.0);
  EXPECT_EQ(McNemarExact(0, 0), 1.0);
}

// By hand, sorted .005 .01 .03 .04: times 4, 3, 2, 1 gives .02 .03 .06 .04; the last may not fall
// below the one before it.
TEST(HolmAdjustedTest, MultipliesByTheHypothesesLeftAndNeverFalls) {
  const std::vector<double> adjusted = HolmAdjusted(std::vector<double>{.01, .04, .03, .005});
  const std::vector<double> wanted = {.03, .06, .06, .02};
  ASSERT_EQ(adjusted.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_NEAR(adjusted[i], wanted[i], 1e-15) << i;
  }
}

TEST(HolmAdjustedTest, StopsAtOneAndLeavesALoneHypothesisAsItIs) {
  EXPECT_EQ(HolmAdjusted(std::vector<double>{.6, .5, 1.0}), (std::vector<double>{1.0, 1.0, 1.0}));
  EXPECT_EQ(HolmAdjusted(std::vector<double>{.25}), std::vector<double>{.25});
  EXPECT_TRUE(HolmAdjusted(std::vector<double>()).empty());
}

}  // namespace
}  // namespace headroom::profiler
