// Column sums and ladders against masks that are written out: attention in double, summed by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "base/philox.h"
#include "engine/kv/column_sums.h"
#include "engine/kv/ladder.h"
#include "kernels/ref/ref_backend.h"

namespace headroom::engine {
namespace {

constexpr int32_t kNumKvHeads = 2;
constexpr int32_t kGroupSize = 3;
constexpr int32_t kHeadDim = 8;
constexpr int32_t kNumQueryHeads = kNumKvHeads * kGroupSize;
constexpr float kScale = 0.35f;

// One layer of random keys with the queries of every row.
class TestLayer {
 public:
  explicit TestLayer(int32_t num_tokens) : num_tokens_(num_tokens) {
    arena_.geometry = {.num_kv_heads = kNumKvHeads,
                       .group_size = kGroupSize,
                       .head_dim = kHeadDim,
                       .dtype = kernels::KvDType::kF32};
    arena_.page_bytes = backend_->KvPageBytes(arena_.geometry);
    const int32_t pages = (num_tokens + kernels::kPageSize - 1) / kernels::kPageSize;
    auto memory = backend_->Allocate(arena_.page_bytes * static_cast<size_t>(kNumKvHeads * pages));
    HEADROOM_CHECK(memory.ok());
    memory_ = std::move(memory).value();
    arena_.base = memory_->data();
    const Philox random(11, 5);
    uint64_t counter = 0;
    const auto draw = [&] { return static_cast<float>(random.Uniform(counter++) * 4.0 - 2.0); };
    pages_.resize(kNumKvHeads);
    for (int32_t head = 0; head < kNumKvHeads; ++head) {
      auto& list = pages_[static_cast<size_t>(head)];
      list.resize(static_cast<size_t>(pages));
      std::iota(list.begin(), list.end(), head * pages);
      for (int32_t slot = 0; slot < num_tokens; ++slot) {
        std::vector<float> k(kHeadDim);
        std::generate(k.begin(), k.end(), draw);
        backend_->WriteKvSlot(arena_, int64_t{head} * pages * kernels::kPageSize + slot, k.data(),
                              k.data());
        keys_.push_back(k);
      }
      views_.push_back({.pages = list.data(), .num_slots = num_tokens});
    }
    queries_.resize(static_cast<size_t>(num_tokens * kNumQueryHeads * kHeadDim));
    std::generate(queries_.begin(), queries_.end(), draw);
  }

  // Attention of one row and query head over columns 0..row.
  std::vector<double> Row(int32_t row, int32_t query_head) const {
    const float* q = queries_.data() + (row * kNumQueryHeads + query_head) * kHeadDim;
    std::vector<double> p;
    for (int32_t column = 0; column <= row; ++column) {
      const std::vector<float>& k =
          keys_[static_cast<size_t>(query_head / kGroupSize * num_tokens_ + column)];
      double logit = 0.0;
      for (size_t i = 0; i < k.size(); ++i) {
        logit += double{k[i]} * double{q[i]};
      }
      p.push_back(std::exp(double{kScale} * logit));
    }
    const double total = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& value : p) {
      value /= total;
    }
    return p;
  }

  ColumnSums Sums(const ColumnNeeds& needs, int32_t chunk) {
    ColumnSums sums;
    for (int32_t begin = 0; begin < num_tokens_; begin += chunk) {
      AddColumnSums(*backend_, arena_, kScale, views_, needs, num_tokens_,
                    {.queries = queries_.data() + begin * kNumQueryHeads * kHeadDim,
                     .stride = kNumQueryHeads * kHeadDim,
                     .row_begin = begin,
                     .num_rows = std::min(chunk, num_tokens_ - begin)},
                    sums);
    }
    return sums;
  }

  kernels::Backend& backend() { return *backend_; }

 private:
  const int32_t num_tokens_;
  std::unique_ptr<kernels::Backend> backend_ = kernels::CreateRefBackend();
  std::unique_ptr<kernels::Buffer> memory_;
  kernels::KvArena arena_;
  std::vector<std::vector<int32_t>> pages_;
  std::vector<kernels::KvHeadView> views_;
  std::vector<std::vector<float>> keys_;  // [num_kv_heads, num_tokens]
  std::vector<float> queries_;            // [num_tokens, num_query_heads, head_dim]
};

double Unit(int64_t sum) {
  return static_cast<double>(sum) / static_cast<double>(kernels::kColumnUnit);
}

TEST(ColumnSumsTest, AddUpTheObservedRowsAndTheirWindows) {
  constexpr int32_t kNumTokens = 45;
  TestLayer layer(kNumTokens);
  for (const uint8_t rows_of_four : {0b1111, 0b0111, 0b1000}) {
    for (const int32_t last_rows : {45, 17, 4}) {
      const ColumnNeeds needs = {.last_rows = last_rows,
                                 .rows_of_four = rows_of_four,
                                 .per_query_head = true,
                                 .near_slots = 6};
      const ColumnSums sums = layer.Sums(needs, kNumTokens);
      for (int32_t head = 0; head < kNumQueryHeads; ++head) {
        std::vector<double> all(kNumTokens, 0.0);
        std::vector<double> near(kNumTokens, 0.0);
        for (int32_t row = kNumTokens - last_rows; row < kNumTokens; ++row) {
          if ((rows_of_four >> ((kNumTokens - 1 - row) % 4) & 1) == 0) {
            continue;
          }
          const std::vector<double> p = layer.Row(row, head);
          for (int32_t column = 0; column <= row; ++column) {
            all[static_cast<size_t>(column)] += p[static_cast<size_t>(column)];
            near[static_cast<size_t>(column)] +=
                column > row - 6 ? p[static_cast<size_t>(column)] : 0.0;
          }
        }
        for (int32_t column = 0; column < kNumTokens; ++column) {
          const auto index = static_cast<size_t>(head * kNumTokens + column);
          // Rounding to 2^-40 per row, sums in doubles.
          EXPECT_NEAR(Unit(sums.sums[index]), all[static_cast<size_t>(column)], 1e-10);
          EXPECT_NEAR(Unit(sums.near[index]), near[static_cast<size_t>(column)], 1e-10);
        }
      }
    }
  }
}

TEST(ColumnSumsTest, ChunksChangeNothing) {
  TestLayer layer(50);
  for (const uint8_t rows_of_four : {0b1111, 0b0111, 0b1000}) {
    const ColumnNeeds needs = {.last_rows = 33, .rows_of_four = rows_of_four, .near_slots = 5};
    const ColumnSums whole = layer.Sums(needs, 50);
    for (const int32_t chunk : {1, 2, 3, 5, 7, 16, 49}) {
      const ColumnSums cut = layer.Sums(needs, chunk);
      EXPECT_EQ(cut.sums, whole.sums) << chunk;
      EXPECT_EQ(cut.near, whole.near) << chunk;
    }
  }
}

TEST(ColumnSumsTest, ScoresAddTheGroupAndDivideByTheRowsThatSeeAColumn) {
  const ColumnNeeds needs = {.last_rows = 3, .per_query_head = true};
  const int64_t unit = kernels::kColumnUnit;
  const ColumnSums sums = {.num_heads = 4,
                           .num_slots = 4,
                           .sums = {unit, 0, unit, 3 * unit, unit, unit, 0, 0,  // KV head 0
                                    0, 0, 0, 0, unit / 2, 0, 0, unit},          // KV head 1
                           .near = {}};
  LayerScores scores;
  ColumnsToScores(sums, needs, 2, /*mean=*/false, scores);
  EXPECT_EQ(scores.pooled, (std::vector<float>{2, 1, 1, 3, 0.5f, 0, 0, 1}));
  ColumnsToScores(sums, needs, 2, /*mean=*/true, scores);
  // Columns 0 and 1 are seen by all three rows, column 2 by two, column 3 by one.
  EXPECT_FLOAT_EQ(scores.pooled[0], 2.0f / 3);
  EXPECT_FLOAT_EQ(scores.pooled[1], 1.0f / 3);
  EXPECT_FLOAT_EQ(scores.pooled[2], 0.5f);
  EXPECT_FLOAT_EQ(scores.pooled[3], 3.0f);
}

TEST(ColumnSumsTest, WhatF32DropsBreaksTies) {
  const ColumnNeeds needs = {.last_rows = 1};
  const int64_t large = int64_t{1000} * kernels::kColumnUnit;
  const ColumnSums sums = {
      .num_heads = 1, .num_slots = 3, .sums = {large, large + 2, large + 1}, .near = {}};
  LayerScores scores;
  ColumnsToScores(sums, needs, 1, /*mean=*/false, scores);
  EXPECT_EQ(scores.pooled[0], scores.pooled[1]);
  EXPECT_LT(scores.raw[0], scores.raw[2]);
  EXPECT_LT(scores.raw[2], scores.raw[1]);
}

class LadderTest : public ::testing::Test {
 protected:
  static constexpr int32_t kNumTokens = 60;

  LadderTest() {
    for (int32_t slot = 0; slot < kNumTokens; ++slot) {
      classes_.push_back(slot % 13 == 6  ? TokenClass::kSpecial
                         : slot % 7 == 3 ? TokenClass::kPunctuation
                                         : TokenClass::kOther);
    }
    sums_ = layer_.Sums(needs_, 16);
    ColumnsToScores(sums_, needs_, kNumKvHeads, /*mean=*/true, scores_);
    plan_.num_entries = kNumTokens;
    plan_.sink_slots = 2;
    plan_.rungs = {{.special = true},
                   {.special = true, .punctuation = true},
                   {.special = true, .punctuation = true, .heavy_entries = 9},
                   {.special = true, .punctuation = true, .heavy_entries = 9, .local_slots = 8}};
    input_ = {.num_slots = kNumTokens,
              .group_size = kGroupSize,
              .scores = &scores_,
              .mass = &sums_,
              .num_mass_rows = kNumTokens,
              .classes = classes_};
  }

  // The mean over rows of the attention on the rung's set, with the window moving.
  double ExplicitMass(int32_t rung, int32_t query_head) {
    const std::vector<int32_t> slots =
        ladders_.RungSlots(plan_, input_, rung, query_head / kGroupSize);
    const int32_t local = plan_.rungs[static_cast<size_t>(rung)].local_slots;
    double mass = 0.0;
    for (int32_t row = 0; row < kNumTokens; ++row) {
      const std::vector<double> p = layer_.Row(row, query_head);
      for (int32_t column = 0; column <= row; ++column) {
        // The last row's window is among the slots; it counts only where a row's own is.
        const bool stands = std::binary_search(slots.begin(), slots.end(), column) &&
                            (local == 0 || column < kNumTokens - local || IsClassed(column));
        if (stands || column > row - local) {
          mass += p[static_cast<size_t>(column)];
        }
      }
    }
    return mass / kNumTokens;
  }
  bool IsClassed(int32_t slot) const {
    return slot < plan_.sink_slots || classes_[static_cast<size_t>(slot)] != TokenClass::kOther;
  }

  TestLayer layer_{kNumTokens};
  const ColumnNeeds needs_ = {.last_rows = kNumTokens, .per_query_head = true, .near_slots = 8};
  std::vector<TokenClass> classes_;
  ColumnSums sums_;
  LayerScores scores_;
  HeadPlan plan_;
  LadderInput input_;
  LadderExecutor ladders_{layer_.backend()};
};

TEST_F(LadderTest, MassesAreThoseOfExplicitMasks) {
  for (int32_t rung = 0; rung < 4; ++rung) {
    for (int32_t head = 0; head < kNumQueryHeads; ++head) {
      EXPECT_NEAR(ladders_.Mass(plan_, input_, rung, head), ExplicitMass(rung, head), 1e-9)
          << "rung " << rung << " head " << head;
    }
  }
}

TEST_F(LadderTest, RungsNestButForTheHeavyColumnsThatTheWindowReplaces) {
  const std::vector<int32_t> special = ladders_.RungSlots(plan_, input_, 0, 0);
  const std::vector<int32_t> punctuation = ladders_.RungSlots(plan_, input_, 1, 0);
  const std::vector<int32_t> heavy = ladders_.RungSlots(plan_, input_, 2, 0);
  const std::vector<int32_t> local = ladders_.RungSlots(plan_, input_, 3, 0);
  EXPECT_TRUE(
      std::includes(punctuation.begin(), punctuation.end(), special.begin(), special.end()));
  EXPECT_TRUE(std::includes(heavy.begin(), heavy.end(), punctuation.begin(), punctuation.end()));
  EXPECT_TRUE(std::includes(local.begin(), local.end(), punctuation.begin(), punctuation.end()));
  EXPECT_EQ(heavy.size(), punctuation.size() + 9);
  EXPECT_EQ(local.back(), kNumTokens - 1);
}

TEST_F(LadderTest, TheNeediestQueryHeadDecides) {
  for (int32_t kv_head = 0; kv_head < kNumKvHeads; ++kv_head) {
    for (int32_t rung = 0; rung < 4; ++rung) {
      double least = 1.0;
      for (int32_t g = 0; g < kGroupSize; ++g) {
        least = std::min(least, ladders_.Mass(plan_, input_, rung, kv_head * kGroupSize + g));
      }
      std::vector<int32_t> kept;
      plan_.mass_target_ppm = static_cast<int64_t>(least * 1e6);  // just reached
      EXPECT_LE(ladders_.Select(plan_, input_, kv_head, kept), rung);
      plan_.mass_target_ppm += 1;  // just missed
      EXPECT_NE(ladders_.Select(plan_, input_, kv_head, kept), rung);
    }
  }
}

TEST_F(LadderTest, WhatNoRungKeepsIsKeptWhole) {
  std::vector<int32_t> kept;
  plan_.mass_target_ppm = kPpm;  // rounding keeps even all columns a little below
  EXPECT_EQ(ladders_.Select(plan_, input_, 0, kept), 4);
  EXPECT_EQ(kept.size(), static_cast<size_t>(kNumTokens));
}

TEST_F(LadderTest, WithoutClassesOnlySinksAreSpecial) {
  input_.classes = {};
  EXPECT_EQ(ladders_.RungSlots(plan_, input_, 1, 0), (std::vector<int32_t>{0, 1}));
}

}  // namespace
}  // namespace headroom::engine
