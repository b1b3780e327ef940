#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "tests/unit/kernels/attention_test_util.h"

namespace headroom::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

struct TopKCase {
  std::vector<float> scores;
  std::vector<float> tie_break;  // empty: none
  std::vector<uint8_t> skip;     // empty: all may be chosen
};

std::vector<int32_t> Select(const TopKCase& input, int32_t k) {
  ThreadPool pool(1);
  AttentionOps ops(AttentionKernelsScalar(), &pool);
  std::vector<int32_t> out(static_cast<size_t>(k), -1);
  ops.SelectTopK({.scores = input.scores.data(),
                  .tie_break = input.tie_break.empty() ? nullptr : input.tie_break.data(),
                  .skip = input.skip.empty() ? nullptr : input.skip.data(),
                  .num_scores = static_cast<int32_t>(input.scores.size()),
                  .k = k,
                  .out = out.data()});
  return out;
}

// The definition: a stable sort by (score, tie_break), NaN last.
std::vector<int32_t> SelectBySorting(const TopKCase& input, int32_t k) {
  std::vector<int32_t> order;
  for (size_t i = 0; i < input.scores.size(); ++i) {
    if (input.skip.empty() || input.skip[i] == 0) {
      order.push_back(static_cast<int32_t>(i));
    }
  }
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const size_t i = static_cast<size_t>(a);
    const size_t j = static_cast<size_t>(b);
    const bool i_nan = std::isnan(input.scores[i]);
    const bool j_nan = std::isnan(input.scores[j]);
    if (i_nan || j_nan) {
      return !i_nan && j_nan;
    }
    if (input.scores[i] != input.scores[j]) {
      return input.scores[i] > input.scores[j];
    }
    return !input.tie_break.empty() && input.tie_break[i] > input.tie_break[j];
  });
  order.resize(static_cast<size_t>(k));
  std::sort(order.begin(), order.end());
  return order;
}

TEST(TopKTest, ChoosesNothingForZeroAndEverythingForAll) {
  const TopKCase input = {{3.0f, kNan, -kInf, 0.0f}, {}, {}};
  EXPECT_TRUE(Select(input, 0).empty());
  EXPECT_EQ(Select(input, 4), (std::vector<int32_t>{0, 1, 2, 3}));
}

TEST(TopKTest, PrefersTheLowerIndexAmongEquals) {
  EXPECT_EQ(Select({std::vector<float>(1000, 0.25f), {}, {}}, 3), (std::vector<int32_t>{0, 1, 2}));
}

TEST(TopKTest, BreaksTiesBySecondScoreThenByIndex) {
  const TopKCase input = {{1.0f, 2.0f, 2.0f, 2.0f, 2.0f}, {9.0f, 1.0f, 3.0f, 2.0f, 3.0f}, {}};
  EXPECT_EQ(Select(input, 1), (std::vector<int32_t>{2}));
  EXPECT_EQ(Select(input, 2), (std::vector<int32_t>{2, 4}));
  EXPECT_EQ(Select(input, 3), (std::vector<int32_t>{2, 3, 4}));
}

TEST(TopKTest, PutsNanBelowEveryNumberAndByIndexAmongThemselves) {
  const TopKCase input = {{kNan, -kInf, -kNan, 5.0f}, {9.0f, 0.0f, 99.0f, 0.0f}, {}};
  EXPECT_EQ(Select(input, 2), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(Select(input, 3), (std::vector<int32_t>{0, 1, 3}));
}

TEST(TopKTest, TakesTheTwoZerosForEqual) {
  EXPECT_EQ(Select({{-0.0f, 0.0f, -1.0f}, {}, {}}, 1), (std::vector<int32_t>{0}));
}

TEST(TopKTest, TellsDenormalsApart) {
  EXPECT_EQ(Select({{1e-42f, 2e-42f, 0.0f}, {}, {}}, 1), (std::vector<int32_t>{1}));
}

TEST(TopKTest, NeverChoosesASkippedIndex) {
  const TopKCase input = {{kInf, 1.0f, kInf, kNan}, {}, {1, 0, 1, 0}};
  EXPECT_EQ(Select(input, 2), (std::vector<int32_t>{1, 3}));
}

TEST(TopKTest, EqualsSortingOnRandomScoresWithManyTies) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const size_t n = 1 + static_cast<size_t>(seed * seed * 37 % 3000);
    TopKCase input;
    for (size_t i = 0; i < n; ++i) {
      const float x = TestValue(seed, 4 * i);
      const float quantum = seed % 3 == 0 ? 4.0f : 1e6f;  // few values, or almost no ties
      input.scores.push_back(TestValue(seed, 4 * i + 1) > 0.98f ? kNan
                                                                : std::round(x * quantum));
      input.tie_break.push_back(std::round(3.0f * TestValue(seed, 4 * i + 2)));
      input.skip.push_back(TestValue(seed, 4 * i + 3) > 0.8f ? 1 : 0);
    }
    const int32_t allowed = static_cast<int32_t>(
        std::count(input.skip.begin(), input.skip.end(), uint8_t{0}));
    for (const int32_t k : {allowed / 10, allowed / 2, allowed}) {
      EXPECT_EQ(Select(input, k), SelectBySorting(input, k));
    }
  }
}

}  // namespace
}  // namespace headroom::kernels
