#include "profiler/race.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "profiler/evaluation/draws.h"
#include "profiler/evaluation/observer.h"

namespace headroom::profiler {
namespace {

TEST(RaceTest, FindsTheBestWithoutMeasuringAllOnEverySample) {
  constexpr size_t kCandidates = 90;
  constexpr size_t kSamples = 40;
  int64_t measured = 0;
  std::vector<size_t> seen(kCandidates, 0);  // samples of each, in order and once
  Draws draws(7, "race");
  const auto raced = Race(kCandidates, kSamples, [&](size_t index, size_t begin, size_t end) {
    EXPECT_EQ(seen[index], begin);
    seen[index] = end;
    measured += static_cast<int64_t>(end - begin);
    double loss = 0.0;
    for (size_t i = begin; i < end; ++i) {
      loss += std::abs(static_cast<double>(index) - 31.0) + 0.01 * draws.Uniform();
    }
    return StatusOr<double>(loss);
  });
  ASSERT_TRUE(raced.ok());
  ASSERT_EQ(raced->size(), kLeastSurvivors);
  EXPECT_EQ(raced->front().index, 31u);
  for (const RacedCandidate& candidate : *raced) {
    EXPECT_EQ(seen[candidate.index], kSamples);
    EXPECT_NEAR(candidate.loss / kSamples, std::abs(static_cast<double>(candidate.index) - 31.0),
                0.01);
  }
  EXPECT_EQ(measured, RaceWork(kCandidates, kSamples));
  EXPECT_LT(measured, static_cast<int64_t>(kCandidates * kSamples) / 4);
}

TEST(RaceTest, FewCandidatesAndFewSamplesAreMeasuredWhole) {
  for (const size_t samples : {1u, 3u, 9u}) {
    const auto raced = Race(3, samples, [](size_t index, size_t begin, size_t end) {
      return StatusOr<double>(static_cast<double>(end - begin) * (index == 1 ? 1.0 : 2.0));
    });
    ASSERT_TRUE(raced.ok());
    ASSERT_EQ(raced->size(), 3u);
    EXPECT_EQ((*raced)[0].index, 1u);
    // Equal losses: the lower index first.
    EXPECT_EQ((*raced)[1].index, 0u);
    EXPECT_EQ((*raced)[2].index, 2u);
    EXPECT_EQ((*raced)[0].loss, static_cast<double>(samples));
    EXPECT_EQ(RaceWork(3, samples), static_cast<int64_t>(3 * samples));
  }
}

TEST(RaceTest, AnErrorEndsIt) {
  int calls = 0;
  const auto raced = Race(5, 8, [&](size_t, size_t, size_t) -> StatusOr<double> {
    return ++calls == 3 ? StatusOr<double>(CancelledStatus()) : StatusOr<double>(1.0);
  });
  EXPECT_EQ(raced.status().code(), StatusCode::kCancelled);
  EXPECT_EQ(calls, 3);
}

}  // namespace
}  // namespace headroom::profiler
