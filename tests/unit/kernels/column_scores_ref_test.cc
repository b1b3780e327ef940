#include <gtest/gtest.h>

#include "base/philox.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/ref/ref_backend.h"
#include "tests/unit/kernels/column_scores_test_util.h"

namespace headroom::kernels {
namespace {

// One sequence's cache on any backend; pages of the heads take turns in the arena.
struct BackendCache {
  std::unique_ptr<Buffer> buffer;
  KvArena arena;
  std::vector<std::vector<int32_t>> pages;
  std::vector<KvHeadView> heads;
  std::vector<std::vector<double>> k;

  BackendCache(Backend& backend, const KvGeometry& g, const std::vector<int32_t>& num_slots) {
    const size_t page_bytes = backend.KvPageBytes(g);
    const int32_t longest = *std::max_element(num_slots.begin(), num_slots.end());
    const int32_t num_pages = (longest + kPageSize - 1) / kPageSize;
    buffer = std::move(backend.Allocate(page_bytes * static_cast<size_t>(num_pages) *
                                        num_slots.size()).value());
    arena = {buffer->data(), page_bytes, g};
    std::vector<float> row(static_cast<size_t>(2 * g.head_dim));
    for (size_t head = 0; head < num_slots.size(); ++head) {
      pages.emplace_back();
      k.emplace_back();
      for (int32_t page = 0; page < num_pages; ++page) {
        pages.back().push_back(page * g.num_kv_heads + static_cast<int32_t>(head));
      }
      for (int32_t slot = 0; slot < num_slots[head]; ++slot) {
        for (size_t d = 0; d < row.size(); ++d) {
          row[d] = static_cast<float>(2.0 * Philox(7).Uniform((head << 40) +
                                      (static_cast<uint64_t>(slot) << 12) + d) - 1.0);
        }
        const int64_t index =
            int64_t{pages.back()[static_cast<size_t>(slot / kPageSize)]} * kPageSize +
            slot % kPageSize;
        backend.WriteKvSlot(arena, index, row.data(), row.data() + g.head_dim);
        backend.ReadKvSlot(arena, index, row.data(), row.data() + g.head_dim);
        k.back().insert(k.back().end(), row.begin(), row.begin() + g.head_dim);
      }
    }
    for (size_t head = 0; head < num_slots.size(); ++head) {
      heads.push_back({pages[head].data(), num_slots[head]});
    }
  }
};

class ColumnScoresRefTest : public ::testing::TestWithParam<std::tuple<KvDType, ColumnKind>> {};

TEST_P(ColumnScoresRefTest, BothBackendsEqualTheDefinition) {
  const auto [dtype, kind] = GetParam();
  const KvGeometry geometry = {2, 3, 24, dtype};
  const std::vector<int32_t> visible = {40, 70, 0, 3, 55, 41, 16, 1};
  std::vector<float> queries(4 * 6 * 24);
  for (size_t i = 0; i < queries.size(); ++i) {
    queries[i] = static_cast<float>(6.0 * Philox(8).Uniform(i) - 3.0);
  }
  std::unique_ptr<Backend> backends[] = {CreateRefBackend(),
                                         std::move(CreateCpuBackend({.num_threads = 2}).value())};
  for (const auto& backend : backends) {
    // f32's error of a probability; ref has the rounding of its addends alone.
    const double relative = backend->name() == "ref" ? 1e-12 : 2e-5;
    const BackendCache cache(*backend, geometry, {55, 70});
    for (const bool per_query_head : {false, true}) {
      const ColumnCase c = {kind, per_query_head, 20, true};
      SCOPED_TRACE(backend->name() + (per_query_head ? " per query head" : " per KV head"));
      ColumnSums sums = ZeroSums(geometry, cache.heads, c);
      RunColumns([&](const ColumnScoresParams& params) { backend->ColumnScores(params); },
                 cache.arena, cache.heads, queries, visible, c, 0, 4, &sums);
      const ColumnOracle oracle =
          ComputeColumnOracle(geometry, cache.k, queries, visible, c);
      for (size_t h = 0; h < sums.sums.size(); ++h) {
        for (size_t i = 0; i < sums.sums[h].size(); ++i) {
          const bool is_probability = kind == ColumnKind::kProbability;
          const double unsure = oracle.num_unsure[h][i] * (is_probability ? 0.5 : 1.0);
          const double scale = is_probability ? relative : 0.0;
          ASSERT_NEAR(static_cast<double>(sums.sums[h][i]), oracle.sums[h][i],
                      scale * oracle.sums[h][i] + unsure);
          ASSERT_NEAR(static_cast<double>(sums.near_sums[h][i]), oracle.near_sums[h][i],
                      scale * oracle.near_sums[h][i] + unsure);
        }
      }
    }
  }
}

TEST(DotWindowScoresTest, BothBackendsEqualTheDefinition) {
  const KvGeometry geometry = {2, 3, 24, KvDType::kF32};
  const int32_t num_columns = 30;
  const int32_t visible[] = {29, 30};  // the first row does not see the last column
  std::vector<float> queries(2 * 6 * 24);
  for (size_t i = 0; i < queries.size(); ++i) {
    queries[i] = static_cast<float>(2.0 * Philox(9).Uniform(i) - 1.0);
  }
  std::unique_ptr<Backend> backends[] = {CreateRefBackend(),
                                         std::move(CreateCpuBackend({.num_threads = 2}).value())};
  for (const auto& backend : backends) {
    const BackendCache cache(*backend, geometry, {num_columns, num_columns});
    std::vector<float> pooled(2 * num_columns);
    std::vector<float> raw(2 * num_columns);
    backend->WindowScores({.queries = queries.data(), .query_stride = 6 * 24,
                           .num_window_rows = 2, .visible = visible, .scale = kTestScale,
                           .arena = cache.arena, .heads = cache.heads.data(),
                           .num_columns = num_columns, .pool_width = 1, .pooled = pooled.data(),
                           .raw = raw.data(), .kind = WindowScoreKind::kDot});
    for (size_t i = 0; i < raw.size(); ++i) {
      const size_t kv_head = i / num_columns;
      const size_t slot = i % num_columns;
      double expected = 0.0;
      for (size_t q = 0; q < 2 * 3 * 24; ++q) {  // (row, query head of the group, dim)
        const size_t row = q / (3 * 24);
        if (slot < static_cast<size_t>(visible[row])) {
          expected += double{queries[row * 6 * 24 + kv_head * 3 * 24 + q % (3 * 24)]} *
                      double{kTestScale} * cache.k[kv_head][slot * 24 + q % 24];
        }
      }
      // 144 products below 0.2 summed in f32.
      ASSERT_NEAR(raw[i], expected, 2e-6) << backend->name() << " " << i;
      ASSERT_EQ(pooled[i], raw[i]) << backend->name() << " " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ColumnScoresRefTest,
                         ::testing::Combine(::testing::Values(KvDType::kF32, KvDType::kBF16,
                                                              KvDType::kInt8),
                                            ::testing::Values(ColumnKind::kProbability,
                                                              ColumnKind::kAboveMean)));

}  // namespace
}  // namespace headroom::kernels
