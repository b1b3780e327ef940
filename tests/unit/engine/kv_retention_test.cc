// RetentionExecutor: must-keep slots first, then score, then the raw score, then the lower slot.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "engine/kv/retention.h"
#include "kernels/ref/ref_backend.h"

namespace headroom::engine {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class RetentionTest : public ::testing::Test {
 protected:
  std::vector<int32_t> Select(const HeadPlan& plan, int32_t num_slots, const LayerScores& scores,
                              int32_t head = 0) {
    std::vector<int32_t> kept;
    executor_.SelectHead(plan, num_slots, &scores, head, kept);
    return kept;
  }

  std::unique_ptr<kernels::Backend> backend_ = kernels::CreateRefBackend();
  RetentionExecutor executor_{*backend_};
};

TEST_F(RetentionTest, SinksAndWindowStayAndTheBestFillTheRest) {
  const LayerScores scores = {
      .num_columns = 6, .pooled = {9, 1, 5, 2, 7, 3}, .raw = {0, 0, 0, 0, 0, 0}};
  const HeadPlan plan = {.num_entries = 5,
                         .sink_slots = 1,
                         .recent_slots = 2,
                         .score = ScoreKind::kWindow,
                         .keep_slots = {}};
  EXPECT_EQ(Select(plan, 8, scores), (std::vector<int32_t>{0, 2, 4, 6, 7}));
}

TEST_F(RetentionTest, ProtectedSlotsDoNotUseUpTheBestScores) {
  const LayerScores scores = {.num_columns = 4, .pooled = {9, 8, 7, 6}, .raw = {0, 0, 0, 0}};
  const HeadPlan plan = {.num_entries = 4,
                         .sink_slots = 2,
                         .recent_slots = 1,
                         .score = ScoreKind::kWindow,
                         .keep_slots = {}};
  EXPECT_EQ(Select(plan, 5, scores), (std::vector<int32_t>{0, 1, 2, 4}));
}

TEST_F(RetentionTest, TiesGoToTheRawScoreAndThenToTheLowerSlot) {
  const LayerScores scores = {.num_columns = 5, .pooled = {4, 4, 4, 4, 1}, .raw = {1, 2, 1, 3, 9}};
  HeadPlan plan = {.num_entries = 1,
                   .sink_slots = 0,
                   .recent_slots = 0,
                   .score = ScoreKind::kWindow,
                   .keep_slots = {}};
  EXPECT_EQ(Select(plan, 5, scores), (std::vector<int32_t>{3}));
  plan.num_entries = 3;
  EXPECT_EQ(Select(plan, 5, scores), (std::vector<int32_t>{0, 1, 3}));
}

TEST_F(RetentionTest, NanNeverWinsAgainstANumber) {
  const LayerScores scores = {
      .num_columns = 4, .pooled = {kNan, -1.0f, kNan, -2.0f}, .raw = {0, 0, 0, 0}};
  HeadPlan plan = {.num_entries = 2,
                   .sink_slots = 0,
                   .recent_slots = 0,
                   .score = ScoreKind::kWindow,
                   .keep_slots = {}};
  EXPECT_EQ(Select(plan, 4, scores), (std::vector<int32_t>{1, 3}));
  plan.num_entries = 3;
  EXPECT_EQ(Select(plan, 4, scores), (std::vector<int32_t>{0, 1, 3}));
}

TEST_F(RetentionTest, EachHeadReadsItsOwnScores) {
  const LayerScores scores = {
      .num_columns = 3, .pooled = {1, 2, 3, 3, 2, 1}, .raw = {0, 0, 0, 0, 0, 0}};
  const HeadPlan plan = {.num_entries = 2,
                         .sink_slots = 0,
                         .recent_slots = 1,
                         .score = ScoreKind::kWindow,
                         .keep_slots = {}};
  EXPECT_EQ(Select(plan, 4, scores, 0), (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(Select(plan, 4, scores, 1), (std::vector<int32_t>{0, 3}));
}

TEST_F(RetentionTest, KeepSlotsAloneNeedNoScores) {
  const HeadPlan plan = {.num_entries = 4,
                         .sink_slots = 1,
                         .recent_slots = 1,
                         .score = ScoreKind::kNone,
                         .keep_slots = {3, 5}};
  std::vector<int32_t> kept;
  executor_.SelectHead(plan, 9, nullptr, 0, kept);
  EXPECT_EQ(kept, (std::vector<int32_t>{0, 3, 5, 8}));
}

// A pool of two heads that keep `pool_entries` together; slot 5 is the window.
LayerPlan PoolOf(int32_t pool_entries, int32_t safe_entries) {
  LayerPlan plan;
  plan.keep_all = false;
  plan.pool = KvPool::kLayer;
  plan.pool_entries = pool_entries;
  plan.heads.assign(2, {.num_entries = 6,
                        .recent_slots = 1,
                        .score = ScoreKind::kWindow,
                        .safe_entries = safe_entries});
  return plan;
}

TEST_F(RetentionTest, HeadsOfAPoolCompeteForWhatSafePartsLeave) {
  const LayerScores scores = {.num_columns = 5,
                              .pooled = {9, 8, 7, 6, 5, 1, 2, 3, 4, 0},
                              .raw = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0}};
  std::vector<std::vector<int32_t>> kept;
  executor_.SelectLayer(PoolOf(6, 1), 6, &scores, {}, kept);
  EXPECT_EQ(kept, (std::vector<std::vector<int32_t>>{{0, 1, 2, 3, 5}, {5}}));
  // The second head's best stay safe although the first head has better ones.
  executor_.SelectLayer(PoolOf(6, 3), 6, &scores, {}, kept);
  EXPECT_EQ(kept, (std::vector<std::vector<int32_t>>{{0, 1, 5}, {2, 3, 5}}));
  executor_.SelectLayer(PoolOf(7, 3), 6, &scores, {}, kept);
  EXPECT_EQ(kept, (std::vector<std::vector<int32_t>>{{0, 1, 2, 5}, {2, 3, 5}}));
  executor_.SelectLayer(PoolOf(12, 1), 6, &scores, {}, kept);
  EXPECT_EQ(kept, (std::vector<std::vector<int32_t>>{{0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5}}));
}

TEST_F(RetentionTest, TiesInAPoolGoToTheRawScoreThenTheLowerHeadThenTheLowerSlot) {
  const LayerScores scores = {.num_columns = 5,
                              .pooled = {4, 4, 4, 4, 4, 4, 4, 4, 4, 4},
                              .raw = {1, 1, 2, 1, 1, 1, 1, 1, 1, 2}};
  std::vector<std::vector<int32_t>> kept;
  executor_.SelectLayer(PoolOf(6, 1), 6, &scores, {}, kept);
  EXPECT_EQ(kept, (std::vector<std::vector<int32_t>>{{0, 1, 2, 5}, {4, 5}}));
}

TEST_F(RetentionTest, OneSetForAllHeadsFollowsTheSumOfTheirScores) {
  const LayerScores scores = {
      .num_columns = 4, .pooled = {5, 0, 3, 0, 0, 4, 3, 0}, .raw = {0, 0, 0, 0, 0, 0, 0, 0}};
  LayerPlan plan;
  plan.keep_all = false;
  plan.heads.assign(2, {.num_entries = 3, .recent_slots = 1, .score = ScoreKind::kWindowAllHeads});
  std::vector<std::vector<int32_t>> kept;
  executor_.SelectLayer(plan, 5, &scores, {}, kept);
  EXPECT_EQ(kept, (std::vector<std::vector<int32_t>>{{0, 2, 4}, {0, 2, 4}}));
}

TEST_F(RetentionTest, RowsAreChosenByTheSumOverHeads) {
  const LayerScores scores = {
      .num_columns = 4, .pooled = {5, 0, 3, 0, 0, 4, 3, 0}, .raw = {0, 0, 0, 0, 0, 0, 0, 0}};
  const TspPlan plan = {.num_rows = 2, .sink_slots = 0, .recent_slots = 1, .keep_slots = {}};
  std::vector<int32_t> rows;
  executor_.SelectRows(plan, 5, &scores, {}, 2, rows);
  EXPECT_EQ(rows, (std::vector<int32_t>{2, 4}));
}

}  // namespace
}  // namespace headroom::engine
