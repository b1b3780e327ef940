#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/unit/kernels/attention_test_util.h"

namespace headroom::kernels {
namespace {

class WindowScoresTest : public ::testing::TestWithParam<std::tuple<IsaCase, KvDType>> {
 protected:
  void SetUp() override {
    if (!std::get<0>(GetParam()).is_supported) {
      GTEST_SKIP() << SkipText(std::get<0>(GetParam()));
    }
  }
  AttentionKernels kernels() const { return std::get<0>(GetParam()).kernels(); }
  KvDType dtype() const { return std::get<1>(GetParam()); }
};

struct WindowCase {
  int32_t num_slots = 0;
  int32_t num_rows = 0;
  int32_t num_columns = 0;
  PoolKind pool = PoolKind::kMax;
  int32_t pool_width = 7;
  WindowScoreKind kind = WindowScoreKind::kSoftmax;
};

struct Scores {
  std::vector<float> pooled;
  std::vector<float> raw;
};

// The window's rows are the sequence's last.
std::vector<int32_t> VisibleOf(const WindowCase& window) {
  std::vector<int32_t> visible;
  for (int32_t r = 0; r < window.num_rows; ++r) {
    visible.push_back(std::max(1, window.num_slots - window.num_rows + r + 1));
  }
  return visible;
}

Scores RunWindow(const TestCache& cache, const std::vector<float>& queries,
                 const WindowCase& window, const AttentionKernels& kernels, int num_threads) {
  const size_t n = static_cast<size_t>(cache.geometry.num_kv_heads * window.num_columns);
  Scores scores = {std::vector<float>(n, NAN), std::vector<float>(n, NAN)};
  const std::vector<int32_t> visible = VisibleOf(window);
  ThreadPool pool(num_threads);
  AttentionOps ops(kernels, &pool);
  ops.WindowScores({.queries = queries.data(), .query_stride = cache.QueryWidth(),
                    .num_window_rows = window.num_rows, .visible = visible.data(),
                    .scale = 0.2f, .arena = cache.arena, .heads = cache.heads.data(),
                    .num_columns = window.num_columns, .pool = window.pool,
                    .pool_width = window.pool_width, .pooled = scores.pooled.data(),
                    .raw = scores.raw.data(), .kind = window.kind});
  return scores;
}

// Probabilities of one query head's window rows, summed over the rows; doubles.
std::vector<double> HeadSums(const TestCache& cache, const std::vector<float>& queries,
                             const WindowCase& window, int32_t query_head) {
  const size_t dim = static_cast<size_t>(cache.geometry.head_dim);
  const size_t kv_head = static_cast<size_t>(query_head / cache.geometry.group_size);
  const std::vector<int32_t> visible = VisibleOf(window);
  std::vector<double> sums(static_cast<size_t>(window.num_columns));
  for (size_t r = 0; r < visible.size(); ++r) {
    const size_t q = r * static_cast<size_t>(cache.QueryWidth()) +
                     static_cast<size_t>(query_head) * dim;
    std::vector<double> p(static_cast<size_t>(visible[r]));
    for (size_t slot = 0; slot < p.size(); ++slot) {
      for (size_t d = 0; d < dim; ++d) {
        p[slot] += double{queries[q + d]} * 0.2f * cache.k[kv_head][slot * dim + d];
      }
    }
    const double max = *std::max_element(p.begin(), p.end());
    double sum = 0.0;
    for (double& x : p) {
      x = std::exp(x - max);
      sum += x;
    }
    for (size_t column = 0; column < sums.size() && column < p.size(); ++column) {
      sums[column] += p[column] / sum;
    }
  }
  return sums;
}

std::vector<double> Pool(const std::vector<double>& x, PoolKind kind, int32_t width) {
  std::vector<double> pooled(x.size());
  const int64_t n = static_cast<int64_t>(x.size());
  for (int64_t i = 0; i < n; ++i) {
    double best = -INFINITY;
    double sum = 0.0;
    for (int64_t j = std::max<int64_t>(0, i - width / 2); j <= std::min(n - 1, i + width / 2);
         ++j) {
      best = std::max(best, x[static_cast<size_t>(j)]);
      sum += x[static_cast<size_t>(j)];
    }
    pooled[static_cast<size_t>(i)] = kind == PoolKind::kMax ? best : sum / width;
  }
  return pooled;
}

TEST_P(WindowScoresTest, EqualsTheDefinition) {
  const WindowCase cases[] = {{300, 8, 292, PoolKind::kMax, 7},   {300, 13, 280, PoolKind::kAvg, 7},
                              {64, 8, 56, PoolKind::kMax, 5},     {9, 8, 1, PoolKind::kMax, 7},
                              {9, 8, 1, PoolKind::kAvg, 7},       {600, 1, 599, PoolKind::kMax, 1},
                              {65, 32, 33, PoolKind::kAvg, 3},    {130, 8, 130, PoolKind::kMax, 7}};
  for (const int32_t head_dim : {16, 64, 100}) {
    for (const WindowCase& window : cases) {
      SCOPED_TRACE("head_dim " + std::to_string(head_dim) + " slots " +
                   std::to_string(window.num_slots));
      const TestCache cache({2, 3, head_dim, dtype()}, {window.num_slots, window.num_slots}, 3, 4);
      const std::vector<float> queries = MakeQueries(cache, window.num_rows, 5);
      const Scores scores = RunWindow(cache, queries, window, kernels(), 2);
      const size_t n = static_cast<size_t>(window.num_columns);
      for (int32_t kv_head = 0; kv_head < 2; ++kv_head) {
        std::vector<double> raw(n);
        std::vector<double> pooled(n);
        for (int32_t i = 0; i < 3; ++i) {
          const std::vector<double> sums = HeadSums(cache, queries, window, 3 * kv_head + i);
          const std::vector<double> head_pooled = Pool(sums, window.pool, window.pool_width);
          for (size_t c = 0; c < n; ++c) {
            raw[c] += sums[c];
            pooled[c] += head_pooled[c];
          }
        }
        for (size_t c = 0; c < n; ++c) {
          const size_t i = static_cast<size_t>(kv_head) * n + c;
          // f32 throughout: scores of up to 20 with an error of 1e-6 each.
          ASSERT_NEAR(scores.raw[i], raw[c], 2e-5 * raw[c] + 1e-9);
          ASSERT_NEAR(scores.pooled[i], pooled[c], 2e-5 * pooled[c] + 1e-9);
        }
      }
    }
  }
}

// Scaled dot products of one query head's rows, summed over the rows that see the column.
std::vector<double> HeadDots(const TestCache& cache, const std::vector<float>& queries,
                             const WindowCase& window, int32_t query_head) {
  const size_t dim = static_cast<size_t>(cache.geometry.head_dim);
  const size_t kv_head = static_cast<size_t>(query_head / cache.geometry.group_size);
  const std::vector<int32_t> visible = VisibleOf(window);
  std::vector<double> sums(static_cast<size_t>(window.num_columns));
  for (size_t r = 0; r < visible.size(); ++r) {
    const size_t q =
        r * static_cast<size_t>(cache.QueryWidth()) + static_cast<size_t>(query_head) * dim;
    for (size_t c = 0; c < sums.size() && c < static_cast<size_t>(visible[r]); ++c) {
      for (size_t d = 0; d < dim; ++d) {
        sums[c] += double{queries[q + d]} * 0.2f * cache.k[kv_head][c * dim + d];
      }
    }
  }
  return sums;
}

TEST_P(WindowScoresTest, DotProductsAreNotNormalised) {
  const WindowScoreKind dot = WindowScoreKind::kDot;
  // One row that sees all, as GemFilter's; and rows that do not see the last columns.
  const WindowCase cases[] = {{300, 1, 300, PoolKind::kAvg, 5, dot},
                              {300, 1, 299, PoolKind::kMax, 7, dot},
                              {40, 9, 40, PoolKind::kMax, 1, dot},
                              {1, 1, 1, PoolKind::kAvg, 3, dot}};
  for (const WindowCase& window : cases) {
    SCOPED_TRACE("slots " + std::to_string(window.num_slots));
    const TestCache cache({2, 3, 64, dtype()}, {window.num_slots, window.num_slots}, 3, 4);
    const std::vector<float> queries = MakeQueries(cache, window.num_rows, 5);
    const Scores scores = RunWindow(cache, queries, window, kernels(), 2);
    const size_t n = static_cast<size_t>(window.num_columns);
    for (size_t c = 0; c < 2 * n; ++c) {
      double raw = 0.0;
      double pooled = 0.0;
      for (int32_t i = 0; i < 3; ++i) {
        const std::vector<double> dots =
            HeadDots(cache, queries, window, static_cast<int32_t>(c / n) * 3 + i);
        raw += dots[c % n];
        pooled += Pool(dots, window.pool, window.pool_width)[c % n];
      }
      // Sums of 64 products below 0.6 in f32, three heads, up to nine rows.
      const double tolerance = 1e-5 * window.num_rows;
      ASSERT_NEAR(scores.raw[c], raw, tolerance);
      ASSERT_NEAR(scores.pooled[c], pooled, tolerance);
    }
  }
}

void ExpectScalarBits(KvDType dtype, const AttentionKernels& kernels, WindowScoreKind kind) {
  const WindowCase window = {700, 9, 690, PoolKind::kMax, 7, kind};
  const TestCache cache({2, 4, 48, dtype}, {700, 700}, 6, 0);
  const TestCache shuffled({2, 4, 48, dtype}, {700, 700}, 6, 7);
  const std::vector<float> queries = MakeQueries(cache, 9, 8);
  const Scores expected = RunWindow(cache, queries, window, AttentionKernelsScalar(), 1);
  for (const int num_threads : {1, 2, 3, 7}) {
    const Scores scores = RunWindow(shuffled, queries, window, kernels, num_threads);
    EXPECT_EQ(std::memcmp(scores.raw.data(), expected.raw.data(), scores.raw.size() * 4), 0);
    EXPECT_EQ(std::memcmp(scores.pooled.data(), expected.pooled.data(), scores.raw.size() * 4), 0);
  }
}

TEST_P(WindowScoresTest, HasTheScalarBitsWhateverThreadsAndPages) {
  for (const WindowScoreKind kind : {WindowScoreKind::kSoftmax, WindowScoreKind::kDot}) {
    ExpectScalarBits(dtype(), kernels(), kind);
  }
}
TEST_P(WindowScoresTest, MaximaOfOnePlateauAreEqual) {
  // Selection breaks plateaus by the score before pooling, so their pooled scores must tie exactly.
  const WindowCase window = {200, 8, 192, PoolKind::kMax, 7};
  const TestCache cache({1, 1, 64, dtype()}, {200}, 9, 0);
  const Scores scores = RunWindow(cache, MakeQueries(cache, 8, 10), window, kernels(), 1);
  const auto best = std::max_element(scores.raw.begin(), scores.raw.end());
  const int64_t index = best - scores.raw.begin();
  for (int64_t i = std::max<int64_t>(0, index - 3); i <= std::min<int64_t>(191, index + 3); ++i) {
    EXPECT_EQ(scores.pooled[static_cast<size_t>(i)], *best);
  }
}

TEST_P(WindowScoresTest, APoolIgnoresNanBesideANumber) {
  float in[40] = {NAN, 1.0f, 3.0f, NAN, NAN, NAN, 2.0f};
  in[38] = NAN;
  in[39] = 5.0f;
  float out[40] = {};
  kernels().add_pooled({.in = in, .out = out, .num_columns = 40, .width = 3, .is_max = true});
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], 3.0f);
  EXPECT_EQ(out[39], 5.0f);
  EXPECT_EQ(out[3], 3.0f);
  EXPECT_TRUE(std::isnan(out[4]));
  EXPECT_EQ(out[5], 2.0f);
}

INSTANTIATE_TEST_SUITE_P(All, WindowScoresTest,
                         ::testing::Combine(::testing::ValuesIn(AllIsas()),
                                            ::testing::ValuesIn(kAllKvDTypes)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name +
                                  DTypeName(std::get<1>(test.param));
                         });

}  // namespace
}  // namespace headroom::kernels
