#include <gtest/gtest.h>

#include <numeric>

#include "tests/unit/kernels/attention_test_util.h"
#include "tests/unit/kernels/column_scores_test_util.h"

namespace headroom::kernels {
namespace {

class ColumnScoresTest : public ::testing::TestWithParam<std::tuple<IsaCase, KvDType>> {
 protected:
  void SetUp() override {
    if (!std::get<0>(GetParam()).is_supported) {
      GTEST_SKIP() << SkipText(std::get<0>(GetParam()));
    }
  }
  AttentionKernels kernels() const { return std::get<0>(GetParam()).kernels(); }
  KvDType dtype() const { return std::get<1>(GetParam()); }
};

// The keys as ReadKvSlot gives them.
std::vector<std::vector<double>> ReadKeys(const TestCache& cache) {
  std::vector<std::vector<double>> keys;
  std::vector<float> row(static_cast<size_t>(2 * cache.geometry.head_dim));
  for (int32_t head = 0; head < cache.geometry.num_kv_heads; ++head) {
    keys.emplace_back();
    for (int32_t slot = 0; slot < cache.heads[static_cast<size_t>(head)].num_slots; ++slot) {
      AttentionOps::ReadKvSlot(cache.arena, cache.SlotOf(head, slot), row.data(),
                               row.data() + cache.geometry.head_dim);
      keys.back().insert(keys.back().end(), row.begin(), row.begin() + cache.geometry.head_dim);
    }
  }
  return keys;
}

// Rows of a causal prompt's end in every head, whatever its length.
std::vector<int32_t> CausalVisible(const TestCache& cache, int32_t num_rows) {
  std::vector<int32_t> visible;
  for (int32_t row = 0; row < num_rows; ++row) {
    for (const KvHeadView& head : cache.heads) {
      visible.push_back(std::max(head.num_slots - num_rows + row + 1, 1));
    }
  }
  return visible;
}

struct Call {
  AttentionKernels kernels;
  int num_threads = 1;
  int32_t rows_per_call = 1 << 20;
};

ColumnSums RunCase(const TestCache& cache, const std::vector<float>& queries,
               const std::vector<int32_t>& visible, const ColumnCase& c, const Call& call) {
  ThreadPool pool(call.num_threads);
  AttentionOps ops(call.kernels, &pool);
  ColumnSums sums = ZeroSums(cache.geometry, cache.heads, c);
  const auto num_rows =
      static_cast<int32_t>(visible.size() / static_cast<size_t>(cache.geometry.num_kv_heads));
  for (int32_t row = 0; row < num_rows; row += call.rows_per_call) {
    RunColumns([&](const ColumnScoresParams& params) { ops.ColumnScores(params); }, cache.arena,
               cache.heads, queries, visible, c, row, std::min(call.rows_per_call, num_rows - row),
               &sums);
  }
  return sums;
}

void ExpectEqualsOracle(const ColumnSums& sums, const ColumnOracle& oracle, const ColumnCase& c) {
  // Probabilities: f32 scores of up to 20 with an error of 1e-6 each, and a rounding per addend.
  // Counts: exact but for comparisons too close to call.
  const bool is_probability = c.kind == ColumnKind::kProbability;
  for (size_t h = 0; h < oracle.sums.size(); ++h) {
    for (size_t i = 0; i < oracle.sums[h].size(); ++i) {
      const double unsure = oracle.num_unsure[h][i] * (is_probability ? 0.5 : 1.0);
      const double relative = is_probability ? 2e-5 : 0.0;
      ASSERT_NEAR(static_cast<double>(sums.sums[h][i]), oracle.sums[h][i],
                  relative * oracle.sums[h][i] + unsure)
          << "head " << h << " slot " << i;
      if (c.has_near) {
        ASSERT_NEAR(static_cast<double>(sums.near_sums[h][i]), oracle.near_sums[h][i],
                    relative * oracle.near_sums[h][i] + unsure)
            << "near, head " << h << " slot " << i;
      }
    }
  }
}

constexpr ColumnCase kCases[] = {
    {ColumnKind::kProbability, false, 0, false}, {ColumnKind::kProbability, true, 37, true},
    {ColumnKind::kProbability, false, 1000, true}, {ColumnKind::kAboveMean, false, 16, true},
    {ColumnKind::kAboveMean, true, 0, true},
};

// In every case.
void ExpectEqualsDefinition(const TestCache& cache, const std::vector<float>& queries,
                            const std::vector<int32_t>& visible, const Call& call) {
  const std::vector<std::vector<double>> keys = ReadKeys(cache);
  for (const ColumnCase& c : kCases) {
    SCOPED_TRACE("case " + std::to_string(&c - kCases));
    ExpectEqualsOracle(RunCase(cache, queries, visible, c, call),
                       ComputeColumnOracle(cache.geometry, keys, queries, visible, c), c);
    if (::testing::Test::HasFatalFailure()) {
      return;
    }
  }
}

TEST_P(ColumnScoresTest, EqualsTheDefinitionForEveryGroupAndHeadSize) {
  struct Shape {
    int32_t group, head_dim;
  };
  for (const Shape shape : {Shape{1, 64}, {3, 64}, {4, 32}, {8, 16}, {3, 100}, {4, 2}}) {
    SCOPED_TRACE("group " + std::to_string(shape.group) + " head_dim " +
                 std::to_string(shape.head_dim));
    // Heads of unequal length, off the edges of pages and tiles.
    const TestCache cache({2, shape.group, shape.head_dim, dtype()}, {150, 67}, 11, 12);
    const std::vector<float> queries = MakeQueries(cache, 40, 13);
    const std::vector<int32_t> visible = CausalVisible(cache, 40);
    ExpectEqualsDefinition(cache, queries, visible, {kernels(), 2});
  }
}

TEST_P(ColumnScoresTest, EqualsTheDefinitionAtEveryEdge) {
  for (const int32_t slots : {1, 2, 15, 16, 17, 63, 64, 65, 511, 512, 513, 1025}) {
    SCOPED_TRACE("slots " + std::to_string(slots));
    const TestCache cache({1, 3, 16, dtype()}, {slots}, 21, 22);
    // Rows that see nothing, one slot, a page less one and all of them, in no order.
    const std::vector<int32_t> visible = {slots, 0, 1, slots - 1, slots, std::min(slots, 16),
                                          std::min(slots, 15)};
    ExpectEqualsDefinition(cache, MakeQueries(cache, 7, 23), visible, {kernels()});
  }
}

TEST_P(ColumnScoresTest, HasTheScalarBitsWhateverCallsThreadsAndPages) {
  const TestCache cache({2, 3, 32, dtype()}, {540, 133}, 31, 0);
  const TestCache shuffled({2, 3, 32, dtype()}, {540, 133}, 31, 32);
  const int32_t num_rows = 40;
  const std::vector<float> queries = MakeQueries(cache, num_rows, 33);
  const std::vector<int32_t> visible = CausalVisible(cache, num_rows);
  for (const ColumnCase& c : kCases) {
    SCOPED_TRACE(&c - kCases);
    const ColumnSums expected = RunCase(cache, queries, visible, c, {AttentionKernelsScalar()});
    const Call calls[] = {
        {kernels(), 1, 1}, {kernels(), 2, 7}, {kernels(), 3, num_rows}, {kernels(), 7, 32}};
    for (const Call& call : calls) {
      EXPECT_EQ(RunCase(shuffled, queries, visible, c, call), expected)
          << call.num_threads << " threads, " << call.rows_per_call << " rows a call";
    }
  }
}

TEST_P(ColumnScoresTest, KvHeadSumsAreTheSumsOfTheirQueryHeads) {
  const TestCache cache({2, 4, 64, dtype()}, {130, 90}, 41, 0);
  const std::vector<float> queries = MakeQueries(cache, 50, 42);
  const std::vector<int32_t> visible = CausalVisible(cache, 50);
  for (const ColumnKind kind : {ColumnKind::kProbability, ColumnKind::kAboveMean}) {
    const ColumnSums heads = RunCase(cache, queries, visible, {kind, true, 9, true}, {kernels()});
    const ColumnSums groups = RunCase(cache, queries, visible, {kind, false, 9, true}, {kernels()});
    for (size_t h = 0; h < 2; ++h) {
      for (size_t i = 0; i < groups.sums[h].size(); ++i) {
        int64_t sum = 0;
        int64_t near_sum = 0;
        for (size_t g = 4 * h; g < 4 * h + 4; ++g) {
          sum += heads.sums[g][i];
          near_sum += heads.near_sums[g][i];
        }
        ASSERT_EQ(groups.sums[h][i], sum);
        ASSERT_EQ(groups.near_sums[h][i], near_sum);
      }
    }
  }
}

TEST_P(ColumnScoresTest, EveryRowAddsOneUnitInAll) {
  const int32_t num_slots = 300;
  const int32_t num_rows = 200;
  const TestCache cache({1, 3, 64, dtype()}, {num_slots}, 51, 0);
  const std::vector<float> queries = MakeQueries(cache, num_rows, 52);
  const ColumnSums sums = RunCase(cache, queries, CausalVisible(cache, num_rows),
                              {ColumnKind::kProbability, true, num_slots, true}, {kernels()});
  for (size_t h = 0; h < 3; ++h) {
    const int64_t total = std::accumulate(sums.sums[h].begin(), sums.sums[h].end(), int64_t{0});
    // An addend's rounding is half a unit in the last place; the f32 sum of a row's exponentials
    // and its inverse are right to 1e-6.
    EXPECT_NEAR(static_cast<double>(total), double{num_rows} * double{kColumnUnit},
                num_rows * (num_slots * 0.5 + 1e-6 * double{kColumnUnit}));
    // With a window as long as the cache, near sums are the sums.
    EXPECT_EQ(sums.near_sums[h], sums.sums[h]);
  }
}

TEST_P(ColumnScoresTest, UniformRowsGiveEqualSharesThatAllCount) {
  const TestCache cache({1, 2, 16, dtype()}, {49}, 61, 0);
  const std::vector<float> queries(static_cast<size_t>(3 * cache.QueryWidth()), 0.0f);
  const std::vector<int32_t> visible = {49, 49, 49};
  const ColumnSums shares =
      RunCase(cache, queries, visible, {ColumnKind::kProbability, false, 0, false}, {kernels()});
  const ColumnSums counts =
      RunCase(cache, queries, visible, {ColumnKind::kAboveMean, false, 0, false}, {kernels()});
  for (size_t i = 0; i < 49; ++i) {
    EXPECT_EQ(shares.sums[0][i], shares.sums[0][0]);
    EXPECT_EQ(counts.sums[0][i], 6);
  }
}

TEST_P(ColumnScoresTest, ARowWithoutNumbersAddsNothing) {
  const TestCache cache({1, 1, 16, dtype()}, {80}, 71, 0);
  std::vector<float> queries = MakeQueries(cache, 3, 72);
  std::fill_n(queries.begin() + 16, 16, std::nanf(""));
  queries[0] = INFINITY;  // scores of both infinities
  const std::vector<float> last(queries.begin() + 32, queries.end());
  for (const ColumnKind kind : {ColumnKind::kProbability, ColumnKind::kAboveMean}) {
    const ColumnCase c = {kind, false, 8, true};
    EXPECT_EQ(RunCase(cache, queries, {80, 80, 80}, c, {kernels()}),
              RunCase(cache, last, {80}, c, {kernels()}));
  }
}

TEST_P(ColumnScoresTest, AddsToWhatIsThereAndLeavesHeadsWithoutSumsAlone) {
  const TestCache cache({2, 2, 16, dtype()}, {40, 70}, 81, 0);
  const std::vector<float> queries = MakeQueries(cache, 5, 82);
  const std::vector<int32_t> visible = CausalVisible(cache, 5);
  const ColumnCase c = {ColumnKind::kProbability, true, 0, false};
  const ColumnSums all = RunCase(cache, queries, visible, c, {kernels()});
  std::vector<int64_t> third(70, 1000);
  int64_t* const pointers[] = {nullptr, nullptr, nullptr, third.data()};
  ThreadPool pool(2);
  AttentionOps ops(kernels(), &pool);
  ops.ColumnScores({.queries = queries.data(), .query_stride = cache.QueryWidth(), .num_rows = 5,
                    .visible = visible.data(), .scale = kTestScale, .arena = cache.arena,
                    .heads = cache.heads.data(), .per_query_head = true, .sums = pointers});
  for (size_t i = 0; i < third.size(); ++i) {
    EXPECT_EQ(third[i], all.sums[3][i] + 1000);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ColumnScoresTest,
                         ::testing::Combine(::testing::ValuesIn(AllIsas()),
                                            ::testing::ValuesIn(kAllKvDTypes)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name +
                                  DTypeName(std::get<1>(test.param));
                         });

}  // namespace
}  // namespace headroom::kernels
