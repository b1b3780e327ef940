#include "profiler/head_elimination.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "profiler/evaluation/observer.h"

namespace headroom::profiler {
namespace {

constexpr size_t kSamples = 16;

bool Has(const std::vector<size_t>& heads, size_t head) {
  return std::find(heads.begin(), heads.end(), head) != heads.end();
}

std::vector<size_t> Heads(size_t count) {
  std::vector<size_t> heads(count);
  std::iota(heads.begin(), heads.end(), size_t{0});
  return heads;
}

// Every sample loses alike.
template <typename Loss>
LossOfHeads OfEach(Loss loss, int64_t* measured = nullptr) {
  return [loss, measured](const std::vector<size_t>& heads, size_t begin, size_t end) {
    if (measured != nullptr) {
      *measured += static_cast<int64_t>(end - begin);
    }
    return StatusOr<double>(static_cast<double>(end - begin) * loss(heads));
  };
}

TEST(HeadEliminationTest, HeadsThatAddUpAreOrderedByWhatTheyAdd) {
  for (const size_t count : {1u, 2u, 7u, 12u, 13u, 14u, 25u, 26u, 40u}) {
    const auto loss = [](const std::vector<size_t>& heads) {
      double sum = 0.0;
      for (const size_t head : heads) {
        sum -= static_cast<double>((head * 11) % 41);  // all different
      }
      return sum;
    };
    int64_t measured = 0;
    const auto order =
        OrderByElimination(Heads(count), kSamples, {.num_exchanged = 5}, OfEach(loss, &measured));
    ASSERT_TRUE(order.ok());
    std::vector<size_t> wanted = Heads(count);
    std::sort(wanted.begin(), wanted.end(),
              [](size_t a, size_t b) { return a * 11 % 41 > b * 11 % 41; });
    EXPECT_EQ(*order, wanted) << count;
    EXPECT_LE(measured, EliminationWork(count, kSamples, {.num_exchanged = 5})) << count;
  }
}

// Heads 1 and 2 do the same work as long as head 0 is there; 1 alone does it worse. Elimination
// drops the better one while it costs nothing.
double LossOfSubstitutes(const std::vector<size_t>& heads) {
  double loss = 0.0;
  for (size_t head = 3; head < 9; ++head) {
    loss += Has(heads, head) ? 0.0 : 10.0 + static_cast<double>(head);
  }
  const bool helped = Has(heads, 0);
  if (!Has(heads, 2)) {
    loss += Has(heads, 1) ? (helped ? -0.1 : 5.0) : 8.0;
  }
  return loss + (helped ? 0.0 : 0.5);
}

TEST(HeadEliminationTest, AnExchangeBringsBackTheBetterOfTwoThatDoTheSame) {
  const auto set_of = [](const std::vector<size_t>& order) {
    return std::set<size_t>(order.begin(), order.begin() + 7);
  };
  const auto without =
      OrderByElimination(Heads(9), kSamples, {.num_exchanged = 0}, OfEach(LossOfSubstitutes));
  const auto with =
      OrderByElimination(Heads(9), kSamples, {.num_exchanged = 7}, OfEach(LossOfSubstitutes));
  ASSERT_TRUE(without.ok() && with.ok());
  EXPECT_EQ(set_of(*without), (std::set<size_t>{1, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(set_of(*with), (std::set<size_t>{2, 3, 4, 5, 6, 7, 8}));
}

// Two of nine go at a time while more than six are left: there are never eight.
TEST(HeadEliminationTest, ExchangesAreTriedWhereTheirNumberIsPassedOver) {
  EliminationOptions options = {.num_single = 5, .num_exchanged = 8};
  const auto order = OrderByElimination(Heads(9), kSamples, options, OfEach(LossOfSubstitutes));
  ASSERT_TRUE(order.ok());
  EXPECT_EQ(std::set<size_t>(order->begin(), order->begin() + 7),
            (std::set<size_t>{2, 3, 4, 5, 6, 7, 8}));
}

TEST(HeadEliminationTest, OfEqualLossesTheEarlierHeadStays) {
  const auto order = OrderByElimination({4, 2, 9, 7}, kSamples, {.num_exchanged = 2},
                                        OfEach([](const std::vector<size_t>&) { return 1.0; }));
  ASSERT_TRUE(order.ok());
  EXPECT_EQ(*order, (std::vector<size_t>{4, 2, 9, 7}));
}

TEST(HeadEliminationTest, AnErrorEndsIt) {
  int calls = 0;
  const LossOfHeads fails = [&](const std::vector<size_t>&, size_t, size_t) -> StatusOr<double> {
    return ++calls == 9 ? StatusOr<double>(CancelledStatus()) : StatusOr<double>(1.0);
  };
  EXPECT_EQ(OrderByElimination(Heads(6), kSamples, {}, fails).status().code(),
            StatusCode::kCancelled);
  EXPECT_EQ(calls, 9);
}

}  // namespace
}  // namespace headroom::profiler
