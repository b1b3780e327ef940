// ColumnScores by distance buckets and ClassMasses against their definitions over explicit
// attention maps in doubles.
#include <gtest/gtest.h>

#include <numeric>

#include "kernels/ref/ref_backend.h"
#include "tests/unit/kernels/attention_test_util.h"
#include "tests/unit/kernels/column_scores_test_util.h"

namespace headroom::kernels {
namespace {

using ColumnOp = std::function<void(const ColumnScoresParams&)>;
using ClassOp = std::function<void(const ClassMassesParams&)>;

// f32 scores of up to 20 with an error of 1e-6 each, through exp and a sum.
constexpr double kRelative = 2e-5;

std::vector<std::vector<double>> KeysOf(const TestCache& cache) {
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

std::vector<int32_t> CausalVisible(const TestCache& cache, int32_t num_rows) {
  std::vector<int32_t> visible;
  for (int32_t row = 0; row < num_rows; ++row) {
    for (const KvHeadView& head : cache.heads) {
      visible.push_back(std::max(head.num_slots - num_rows + row + 1, 1));
    }
  }
  return visible;
}

// p of every row, query head and visible slot: the whole map.
std::vector<std::vector<std::vector<double>>> ExplicitMap(const TestCache& cache,
                                                          const std::vector<float>& queries,
                                                          const std::vector<int32_t>& visible) {
  const KvGeometry& g = cache.geometry;
  const auto dim = static_cast<size_t>(g.head_dim);
  const auto num_heads = static_cast<size_t>(g.num_kv_heads * g.group_size);
  const auto num_kv_heads = static_cast<size_t>(g.num_kv_heads);
  const std::vector<std::vector<double>> keys = KeysOf(cache);
  std::vector<std::vector<std::vector<double>>> map(visible.size() / num_kv_heads);
  for (size_t row = 0; row < map.size(); ++row) {
    for (size_t head = 0; head < num_heads; ++head) {
      const size_t kv_head = head / static_cast<size_t>(g.group_size);
      std::vector<double> p =
          ExpScores(queries.data() + (row * num_heads + head) * dim, keys[kv_head], dim,
                    static_cast<size_t>(visible[row * num_kv_heads + kv_head]));
      const double sum = std::accumulate(p.begin(), p.end(), 0.0);
      for (double& x : p) {
        x /= sum;
      }
      map[row].push_back(std::move(p));
    }
  }
  return map;
}

struct Buckets {
  std::vector<int32_t> edges;
  int32_t stride = 0;
  std::vector<std::vector<int64_t>> sums;  // [sums' heads][buckets * stride]
  bool operator==(const Buckets&) const = default;
};

Buckets RunBuckets(const ColumnOp& op, const TestCache& cache, const std::vector<float>& queries,
                   const std::vector<int32_t>& visible, const std::vector<int32_t>& edges,
                   bool per_query_head, int32_t rows_per_call = 1 << 20) {
  const KvGeometry& g = cache.geometry;
  Buckets buckets;
  buckets.edges = edges;
  for (const KvHeadView& head : cache.heads) {
    buckets.stride = std::max(buckets.stride, head.num_slots);
  }
  buckets.sums.assign(
      static_cast<size_t>(g.num_kv_heads * (per_query_head ? g.group_size : 1)),
      std::vector<int64_t>((edges.size() + 1) * static_cast<size_t>(buckets.stride)));
  std::vector<int64_t*> pointers;
  for (auto& sum : buckets.sums) {
    pointers.push_back(sum.data());
  }
  const auto num_rows = static_cast<int32_t>(visible.size()) / g.num_kv_heads;
  for (int32_t row = 0; row < num_rows; row += rows_per_call) {
    op({.queries = queries.data() + row * cache.QueryWidth(),
        .query_stride = cache.QueryWidth(),
        .num_rows = std::min(rows_per_call, num_rows - row),
        .visible = visible.data() + row * g.num_kv_heads,
        .scale = kTestScale,
        .arena = cache.arena,
        .heads = cache.heads.data(),
        .per_query_head = per_query_head,
        .bucket_edges = buckets.edges,
        .bucket_stride = buckets.stride,
        .sums = pointers});
  }
  return buckets;
}

void ExpectEqualsMap(const Buckets& buckets, const TestCache& cache,
                     const std::vector<std::vector<std::vector<double>>>& map,
                     bool per_query_head) {
  std::vector<std::vector<double>> expected(buckets.sums.size(),
                                            std::vector<double>(buckets.sums.front().size(), 0.0));
  for (const auto& row : map) {
    for (size_t head = 0; head < row.size(); ++head) {
      const size_t target =
          per_query_head ? head : head / static_cast<size_t>(cache.geometry.group_size);
      for (size_t slot = 0; slot < row[head].size(); ++slot) {
        const size_t distance = row[head].size() - 1 - slot;
        size_t bucket = 0;
        for (const int32_t edge : buckets.edges) {
          bucket += distance >= static_cast<size_t>(edge) ? 1 : 0;
        }
        expected[target][bucket * static_cast<size_t>(buckets.stride) + slot] += row[head][slot];
      }
    }
  }
  for (size_t h = 0; h < expected.size(); ++h) {
    for (size_t i = 0; i < expected[h].size(); ++i) {
      const double got = static_cast<double>(buckets.sums[h][i]) / double{kColumnUnit};
      // And half a unit for each of at most 100 rows of a group of 8.
      ASSERT_NEAR(got, expected[h][i], kRelative * expected[h][i] + 400.0 / double{kColumnUnit})
          << "head " << h << " bucket " << i / static_cast<size_t>(buckets.stride) << " slot "
          << i % static_cast<size_t>(buckets.stride);
    }
  }
}

const std::vector<std::vector<int32_t>> kEdges = {
    {1}, {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096}, {64, 153}, {3, 5, 17, 900}};

class DistanceBucketsTest : public ::testing::TestWithParam<std::tuple<IsaCase, KvDType>> {
 protected:
  void SetUp() override {
    if (!std::get<0>(GetParam()).is_supported) {
      GTEST_SKIP() << SkipText(std::get<0>(GetParam()));
    }
  }
  AttentionKernels kernels() const { return std::get<0>(GetParam()).kernels(); }
  KvDType dtype() const { return std::get<1>(GetParam()); }
};

// Calls an op of the kernels on a pool of its own.
template <typename Params>
std::function<void(const Params&)> OpOf(const AttentionKernels& kernels, int num_threads) {
  return [=](const Params& params) {
    ThreadPool pool(num_threads);
    AttentionOps ops(kernels, &pool);
    if constexpr (std::is_same_v<Params, ColumnScoresParams>) {
      ops.ColumnScores(params);
    } else {
      ops.ClassMasses(params);
    }
  };
}

TEST_P(DistanceBucketsTest, EqualTheExplicitMap) {
  struct Shape {
    int32_t group, head_dim, slots;
  };
  for (const Shape shape : {Shape{3, 64, 333}, {1, 16, 65}, {4, 32, 150}, {2, 2, 17}, {8, 16, 1}}) {
    const TestCache cache({2, shape.group, shape.head_dim, dtype()},
                          {shape.slots, std::max(shape.slots / 2, 1)}, 11, 12);
    const int32_t num_rows = std::min(shape.slots, 40);
    const std::vector<float> queries = MakeQueries(cache, num_rows, 13);
    const std::vector<int32_t> visible = CausalVisible(cache, num_rows);
    const auto map = ExplicitMap(cache, queries, visible);
    for (const std::vector<int32_t>& edges : kEdges) {
      for (const bool per_query_head : {false, true}) {
        SCOPED_TRACE("slots " + std::to_string(shape.slots) + ", first edge " +
                     std::to_string(edges[0]) + ", edges " + std::to_string(edges.size()));
        ExpectEqualsMap(RunBuckets(OpOf<ColumnScoresParams>(kernels(), 2), cache, queries, visible,
                                   edges, per_query_head),
                        cache, map, per_query_head);
        if (HasFatalFailure()) {
          return;
        }
      }
    }
  }
}

TEST_P(DistanceBucketsTest, AddUpToTheColumnsWithoutBucketsBitForBit) {
  const TestCache cache({2, 3, 32, dtype()}, {540, 133}, 31, 32);
  const std::vector<float> queries = MakeQueries(cache, 50, 33);
  const std::vector<int32_t> visible = CausalVisible(cache, 50);
  const ColumnOp op = OpOf<ColumnScoresParams>(kernels(), 2);
  const Buckets whole = RunBuckets(op, cache, queries, visible, {}, true);
  for (const std::vector<int32_t>& edges : kEdges) {
    const Buckets cut = RunBuckets(op, cache, queries, visible, edges, true);
    for (size_t h = 0; h < whole.sums.size(); ++h) {
      for (size_t slot = 0; slot < whole.sums[h].size(); ++slot) {
        int64_t sum = 0;
        for (size_t b = 0; b <= edges.size(); ++b) {
          sum += cut.sums[h][b * static_cast<size_t>(cut.stride) + slot];
        }
        ASSERT_EQ(sum, whole.sums[h][slot]);
      }
    }
  }
}

TEST_P(DistanceBucketsTest, HaveTheScalarBitsWhateverCallsThreadsAndPages) {
  const TestCache cache({2, 3, 32, dtype()}, {540, 133}, 31, 0);
  const TestCache shuffled({2, 3, 32, dtype()}, {540, 133}, 31, 32);
  const std::vector<float> queries = MakeQueries(cache, 40, 33);
  const std::vector<int32_t> visible = CausalVisible(cache, 40);
  for (const bool per_query_head : {false, true}) {
    const Buckets expected = RunBuckets(OpOf<ColumnScoresParams>(AttentionKernelsScalar(), 1),
                                        cache, queries, visible, kEdges[1], per_query_head);
    for (const auto& [threads, rows] : {std::pair{1, 1}, {2, 7}, {3, 40}, {7, 32}}) {
      EXPECT_EQ(RunBuckets(OpOf<ColumnScoresParams>(kernels(), threads), shuffled, queries, visible,
                           kEdges[1], per_query_head, rows),
                expected)
          << threads << " threads, " << rows << " rows a call";
    }
  }
}

// Classes by a rule that differs from head to head; class 3 of 3 is none.
std::vector<std::vector<uint8_t>> MakeClasses(const TestCache& cache, int32_t num_lists) {
  std::vector<std::vector<uint8_t>> classes;
  for (int32_t list = 0; list < num_lists; ++list) {
    const int32_t head = list * cache.geometry.num_kv_heads / num_lists;
    classes.emplace_back();
    for (int32_t slot = 0; slot < cache.heads[static_cast<size_t>(head)].num_slots; ++slot) {
      classes.back().push_back(static_cast<uint8_t>((slot * 7 + list + slot / 50) % 4));
    }
  }
  return classes;
}

std::vector<int64_t> RunClasses(const ClassOp& op, const TestCache& cache,
                                const std::vector<float>& queries,
                                const std::vector<int32_t>& visible, int32_t num_lists,
                                int32_t rows_per_call = 1 << 20) {
  const KvGeometry& g = cache.geometry;
  const auto num_rows = static_cast<int32_t>(visible.size()) / g.num_kv_heads;
  const std::vector<std::vector<uint8_t>> classes = MakeClasses(cache, num_lists);
  std::vector<const uint8_t*> lists;
  for (const auto& list : classes) {
    lists.push_back(list.data());
  }
  const int64_t width = int64_t{g.num_kv_heads} * g.group_size * 3;
  std::vector<int64_t> masses(static_cast<size_t>(num_rows * width), -1);
  for (int32_t row = 0; row < num_rows; row += rows_per_call) {
    op({.queries = queries.data() + row * cache.QueryWidth(),
        .query_stride = cache.QueryWidth(),
        .num_rows = std::min(rows_per_call, num_rows - row),
        .visible = visible.data() + row * g.num_kv_heads,
        .scale = kTestScale,
        .arena = cache.arena,
        .heads = cache.heads.data(),
        .num_classes = 3,
        .classes = lists,
        .masses = masses.data() + row * width});
  }
  return masses;
}

TEST_P(DistanceBucketsTest, ClassMassesEqualTheExplicitMap) {
  for (const int32_t slots : {1, 15, 64, 65, 333}) {
    const TestCache cache({2, 3, 64, dtype()}, {slots, std::max(slots / 3, 1)}, 41, 42);
    const int32_t num_rows = std::min(slots, 30);
    const std::vector<float> queries = MakeQueries(cache, num_rows, 43);
    const std::vector<int32_t> visible = CausalVisible(cache, num_rows);
    const auto map = ExplicitMap(cache, queries, visible);
    for (const int32_t num_lists : {2, 6}) {
      const auto classes = MakeClasses(cache, num_lists);
      const std::vector<int64_t> masses =
          RunClasses(OpOf<ClassMassesParams>(kernels(), 2), cache, queries, visible, num_lists);
      for (size_t row = 0; row < map.size(); ++row) {
        for (size_t head = 0; head < 6; ++head) {
          double expected[4] = {};
          for (size_t slot = 0; slot < map[row][head].size(); ++slot) {
            expected[classes[num_lists == 6 ? head : head / 3][slot]] += map[row][head][slot];
          }
          for (size_t c = 0; c < 3; ++c) {
            ASSERT_NEAR(static_cast<double>(masses[(row * 6 + head) * 3 + c]) / double{kColumnUnit},
                        expected[c], kRelative * expected[c] + 1e-11)
                << "slots " << slots << " row " << row << " head " << head << " class " << c;
          }
        }
      }
    }
  }
}

TEST_P(DistanceBucketsTest, ClassMassesHaveTheScalarBitsWhateverCallsThreadsAndPages) {
  const TestCache cache({2, 3, 32, dtype()}, {540, 133}, 31, 0);
  const TestCache shuffled({2, 3, 32, dtype()}, {540, 133}, 31, 32);
  const std::vector<float> queries = MakeQueries(cache, 40, 33);
  const std::vector<int32_t> visible = CausalVisible(cache, 40);
  for (const int32_t num_lists : {2, 6}) {
    const std::vector<int64_t> expected = RunClasses(
        OpOf<ClassMassesParams>(AttentionKernelsScalar(), 1), cache, queries, visible, num_lists);
    for (const auto& [threads, rows] : {std::pair{1, 1}, {2, 7}, {3, 40}, {7, 32}}) {
      EXPECT_EQ(RunClasses(OpOf<ClassMassesParams>(kernels(), threads), shuffled, queries, visible,
                           num_lists, rows),
                expected)
          << threads << " threads, " << rows << " rows a call";
    }
  }
}

TEST_P(DistanceBucketsTest, RowsWithoutNumbersHaveNoClassMass) {
  const TestCache cache({1, 1, 16, dtype()}, {80}, 71, 0);
  std::vector<float> queries = MakeQueries(cache, 3, 72);
  std::fill_n(queries.begin() + 16, 16, std::nanf(""));
  queries[0] = INFINITY;
  const std::vector<int64_t> masses =
      RunClasses(OpOf<ClassMassesParams>(kernels(), 1), cache, queries, {80, 80, 0}, 1);
  EXPECT_EQ(masses, std::vector<int64_t>(9, 0));
}

INSTANTIATE_TEST_SUITE_P(All, DistanceBucketsTest,
                         ::testing::Combine(::testing::ValuesIn(AllIsas()),
                                            ::testing::ValuesIn(kAllKvDTypes)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name + DTypeName(std::get<1>(test.param));
                         });

}  // namespace
}  // namespace headroom::kernels
