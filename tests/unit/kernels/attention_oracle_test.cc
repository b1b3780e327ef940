// Attention against the definition in doubles.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/unit/kernels/attention_test_util.h"

namespace headroom::kernels {
namespace {

// Queries and the cache enter the oracle as the op rounds them. What is left: with a bf16 cache a
// probability is rounded to bf16 (a relative error of up to 2^-8, in the sum of probabilities too),
// everything else is f32 (scores of up to 20 with an error of 1e-6 each).
double Tolerance(KvDType dtype, double out, double bound) {
  return (dtype == KvDType::kBF16 ? 0x1p-8 : 0.0) * (bound + std::abs(out)) + 2e-5 * bound + 1e-7;
}

void ExpectNearOracle(const TestCache& cache, const std::vector<float>& queries,
                      const std::vector<int32_t>& visible, float scale,
                      const std::vector<float>& out) {
  const AttentionOracle oracle = ComputeAttentionOracle(cache, queries, visible, scale);
  for (size_t i = 0; i < out.size(); ++i) {
    ASSERT_LE(std::abs(out[i] - oracle.out[i]),
              Tolerance(cache.geometry.dtype, oracle.out[i], oracle.bound[i]))
        << "element " << i << " of row " << i / static_cast<size_t>(cache.QueryWidth()) << ": "
        << out[i] << ", wanted " << oracle.out[i];
  }
}

struct ShapeCase {
  int32_t head_dim;
  int32_t group_size;
};

class AttentionOracleTest : public ::testing::TestWithParam<std::tuple<IsaCase, KvDType>> {
 protected:
  void SetUp() override {
    if (!std::get<0>(GetParam()).is_supported) {
      GTEST_SKIP() << SkipText(std::get<0>(GetParam()));
    }
  }
  AttentionKernels kernels() const { return std::get<0>(GetParam()).kernels(); }
  KvDType dtype() const { return std::get<1>(GetParam()); }
};

TEST_P(AttentionOracleTest, CausalPrefillOfEveryShapeEqualsTheDefinition) {
  for (const ShapeCase& shape : {ShapeCase{2, 1}, {16, 3}, {32, 4}, {48, 1}, {64, 3}, {80, 8},
                                 {96, 3}, {100, 2}, {128, 4}, {256, 1}, {16, 30}}) {
    SCOPED_TRACE("head_dim " + std::to_string(shape.head_dim) + " group " +
                 std::to_string(shape.group_size));
    const int32_t n = 83;
    const TestCache cache({2, shape.group_size, shape.head_dim, dtype()}, {n, n}, 11, 5);
    const std::vector<float> queries = MakeQueries(cache, n, 12);
    std::vector<int32_t> visible;
    for (int32_t r = 0; r < n; ++r) {
      visible.insert(visible.end(), {r + 1, r + 1});
    }
    const float scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
    ExpectNearOracle(cache, queries, visible, scale,
                     RunAttention(cache, queries, visible, scale, kernels(), 1));
  }
}

TEST_P(AttentionOracleTest, EveryLengthAroundPagesTilesAndChunksEqualsTheDefinition) {
  for (const int32_t n : {1, 2, 15, 16, 17, 63, 64, 65, 511, 512, 513, 1025, 1100}) {
    SCOPED_TRACE("length " + std::to_string(n));
    const TestCache cache({1, 3, 64, dtype()}, {n}, 21, 6);
    const std::vector<float> queries = MakeQueries(cache, 1, 22);
    ExpectNearOracle(cache, queries, {n}, 0.125f,
                     RunAttention(cache, queries, {n}, 0.125f, kernels(), 1));
  }
}

TEST_P(AttentionOracleTest, RowsOfRaggedHeadsSeeTheirOwnSlotsOnly) {
  // Survivors of a token-selective layer and compacted heads: no order, no common length.
  const std::vector<int32_t> lengths = {700, 1, 130};
  const TestCache cache({3, 4, 32, dtype()}, lengths, 31, 7);
  const int64_t num_rows = 9;
  const std::vector<float> queries = MakeQueries(cache, num_rows, 32);
  std::vector<int32_t> visible;
  for (uint64_t r = 0; r < static_cast<uint64_t>(num_rows); ++r) {
    for (size_t head = 0; head < lengths.size(); ++head) {
      const double share = 0.5 + 0.5 * TestValue(33, r * 3 + head);
      visible.push_back(1 + static_cast<int32_t>(share * (lengths[head] - 1)));
    }
  }
  ExpectNearOracle(cache, queries, visible, 0.2f,
                   RunAttention(cache, queries, visible, 0.2f, kernels(), 2));
}

TEST_P(AttentionOracleTest, LargeScoresNeitherOverflowNorLoseTheWinner) {
  const TestCache cache({1, 2, 64, dtype()}, {600}, 41, 0);
  const std::vector<float> queries = MakeQueries(cache, 3, 42);
  const std::vector<float> out =
      RunAttention(cache, queries, {600, 599, 1}, 100.0f, kernels(), 1);
  const AttentionOracle oracle = ComputeAttentionOracle(cache, queries, {600, 599, 1}, 100.0f);
  for (size_t i = 0; i < out.size(); ++i) {
    // Scores of thousands carry an f32 error of about 1e-3.
    ASSERT_LE(std::abs(out[i] - oracle.out[i]), 5e-3 + 0.01 * oracle.bound[i]);
  }
}

TEST_P(AttentionOracleTest, ANanQueryStaysInItsOwnHead) {
  const TestCache cache({2, 2, 16, dtype()}, {20, 20}, 51, 0);
  std::vector<float> queries = MakeQueries(cache, 2, 52);
  const std::vector<int32_t> visible = {20, 20, 20, 20};
  const std::vector<float> clean = RunAttention(cache, queries, visible, 0.25f, kernels(), 1);
  queries[16 * 5] = std::nanf("");  // row 1, head 1
  const std::vector<float> out = RunAttention(cache, queries, visible, 0.25f, kernels(), 1);
  for (size_t i = 0; i < out.size(); ++i) {
    if (i / 16 == 5) {
      EXPECT_TRUE(std::isnan(out[i]));
    } else {
      EXPECT_EQ(out[i], clean[i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, AttentionOracleTest,
                         ::testing::Combine(::testing::ValuesIn(AllIsas()),
                                            ::testing::ValuesIn(kAllKvDTypes)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name +
                                  DTypeName(std::get<1>(test.param));
                         });

}  // namespace
}  // namespace headroom::kernels
