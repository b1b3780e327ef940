// A row's bits depend on the row, its slots and their order: not on the other rows of the call,
// chunking, threads, where pages lie, or the instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/unit/kernels/attention_test_util.h"

namespace headroom::kernels {
namespace {

constexpr float kScale = 0.125f;

// Bitwise, so that the sign of a zero counts.
void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(std::memcmp(&a[i], &b[i], sizeof(float)), 0)
        << "element " << i << ": " << a[i] << " and " << b[i];
  }
}

std::vector<int32_t> CausalVisible(int32_t first, int32_t num_rows, int32_t num_kv_heads) {
  std::vector<int32_t> visible;
  for (int32_t r = 0; r < num_rows; ++r) {
    visible.insert(visible.end(), static_cast<size_t>(num_kv_heads), first + r + 1);
  }
  return visible;
}

class AttentionInvarianceTest : public ::testing::TestWithParam<std::tuple<IsaCase, KvDType>> {
 protected:
  void SetUp() override {
    if (!std::get<0>(GetParam()).is_supported) {
      GTEST_SKIP() << SkipText(std::get<0>(GetParam()));
    }
  }
  AttentionKernels kernels() const { return std::get<0>(GetParam()).kernels(); }
  KvDType dtype() const { return std::get<1>(GetParam()); }
};

TEST_P(AttentionInvarianceTest, ChunkedPrefillHasTheBitsOfOneShot) {
  const int32_t n = 601;
  const TestCache cache({2, 3, 64, dtype()}, {n, n}, 61, 0);
  const std::vector<float> queries = MakeQueries(cache, n, 62);
  const std::vector<float> whole =
      RunAttention(cache, queries, CausalVisible(0, n, 2), kScale, kernels(), 1);
  for (const int32_t chunk : {1, 7, 64, 512}) {
    SCOPED_TRACE("chunk " + std::to_string(chunk));
    std::vector<float> parts;
    for (int32_t first = 0; first < n; first += chunk) {
      const int32_t rows = std::min(chunk, n - first);
      const auto begin = queries.begin() + first * cache.QueryWidth();
      const std::vector<float> some(begin, begin + rows * cache.QueryWidth());
      const std::vector<float> out =
          RunAttention(cache, some, CausalVisible(first, rows, 2), kScale, kernels(), 1);
      parts.insert(parts.end(), out.begin(), out.end());
    }
    ExpectSameBits(whole, parts);
  }
}

TEST_P(AttentionInvarianceTest, ThreadsAndSplitsDoNotChangeBits) {
  for (const int32_t rows : {1, 2, 40}) {
    const int32_t n = 2100;
    const TestCache cache({2, 3, 48, dtype()}, {n, n}, 71, 0);
    const std::vector<float> queries = MakeQueries(cache, rows, 72);
    const std::vector<int32_t> visible = CausalVisible(n - rows, rows, 2);
    const std::vector<float> one = RunAttention(cache, queries, visible, kScale, kernels(), 1);
    for (const int num_threads : {2, 3, 7}) {
      SCOPED_TRACE("rows " + std::to_string(rows) + " threads " + std::to_string(num_threads));
      ExpectSameBits(one, RunAttention(cache, queries, visible, kScale, kernels(), num_threads));
    }
  }
}

TEST_P(AttentionInvarianceTest, PagesMayLieAnywhere) {
  const std::vector<int32_t> lengths = {777, 90};
  const TestCache in_order({2, 4, 80, dtype()}, lengths, 81, 0);
  const std::vector<float> queries = MakeQueries(in_order, 4, 82);
  const std::vector<int32_t> visible = {777, 90, 776, 3, 40, 90, 513, 17};
  const std::vector<float> expected =
      RunAttention(in_order, queries, visible, kScale, kernels(), 2);
  for (const uint64_t placement : {1u, 2u, 3u}) {
    const TestCache shuffled({2, 4, 80, dtype()}, lengths, 81, placement);
    ExpectSameBits(expected, RunAttention(shuffled, queries, visible, kScale, kernels(), 2));
  }
}

TEST_P(AttentionInvarianceTest, BatchMatesDoNotChangeARow) {
  const TestCache first({2, 3, 64, dtype()}, {900, 33}, 91, 4);
  const TestCache second({2, 3, 64, dtype()}, {5, 1300}, 92, 0);
  // Both caches in one arena: the second's pages follow the first's.
  TestCache both = first;
  const size_t used = both.memory.size() / both.arena.page_bytes;
  both.memory.insert(both.memory.end(), second.memory.begin(), second.memory.end());
  std::vector<uint8_t> memory(both.arena.page_bytes * (used + 100) + 64, 0xff);
  uint8_t* base = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  const size_t page_bytes = first.arena.page_bytes;
  std::memcpy(base, first.arena.base, page_bytes * used);
  size_t second_pages = 0;
  std::vector<std::vector<int32_t>> lists = second.pages;
  for (auto& list : lists) {
    second_pages += list.size();
    for (int32_t& page : list) {
      page += static_cast<int32_t>(used);
    }
  }
  std::memcpy(base + page_bytes * used, second.arena.base, page_bytes * second_pages);
  const KvArena arena = {base, page_bytes, first.geometry};
  const std::vector<KvHeadView> second_heads = {{lists[0].data(), 5}, {lists[1].data(), 1300}};

  const int64_t width = first.QueryWidth();
  const std::vector<float> queries = MakeQueries(first, 12, 93);
  std::vector<int32_t> visible = {900, 33};
  for (int32_t r = 0; r < 10; ++r) {
    visible.insert(visible.end(), {5 - r / 5, 1291 + r});
  }
  visible.insert(visible.end(), {899, 32});
  // A decode row, a prefill chunk of another sequence, a decode row of the first.
  const std::vector<AttentionSegment> segments = {
      {0, 1, first.heads.data()}, {1, 10, second_heads.data()}, {11, 1, first.heads.data()}};
  std::vector<float> out(queries.size());
  ThreadPool pool(3);
  AttentionOps ops(kernels(), &pool);
  ops.Attention({.q = queries.data(), .q_stride = width, .out = out.data(), .out_stride = width,
                 .scale = kScale, .arena = arena, .segments = segments,
                 .visible = visible.data()});
  for (int32_t r = 0; r < 12; ++r) {
    const bool is_first = r == 0 || r == 11;
    const auto begin = queries.begin() + r * width;
    const std::vector<float> alone =
        RunAttention(is_first ? first : second, std::vector<float>(begin, begin + width),
                     {visible[static_cast<size_t>(2 * r)], visible[static_cast<size_t>(2 * r + 1)]},
                     kScale, kernels(), 1);
    SCOPED_TRACE("row " + std::to_string(r));
    ExpectSameBits(alone, std::vector<float>(out.begin() + r * width,
                                             out.begin() + (r + 1) * width));
  }
}

TEST_P(AttentionInvarianceTest, SlotsBeyondARowsLastDoNotReachIt) {
  // A later token's NaN, and whatever an earlier owner left in the last page.
  TestCache cache({1, 3, 64, dtype()}, {100}, 101, 0);
  const std::vector<float> queries = MakeQueries(cache, 5, 102);
  const std::vector<int32_t> visible = {64, 65, 66, 81, 99};
  const std::vector<float> clean = RunAttention(cache, queries, visible, kScale, kernels(), 1);
  const std::vector<float> nans(64, std::numeric_limits<float>::quiet_NaN());
  AttentionOps::WriteKvSlot(cache.arena, cache.SlotOf(0, 99), nans.data(), nans.data());
  ExpectSameBits(clean, RunAttention(cache, queries, visible, kScale, kernels(), 1));
}

TEST_P(AttentionInvarianceTest, EveryInstructionSetGivesTheScalarBits) {
  for (const int32_t head_dim : {2, 16, 48, 64, 80, 128, 250}) {
    SCOPED_TRACE("head_dim " + std::to_string(head_dim));
    const int32_t n = 600;
    const TestCache cache({2, 3, head_dim, dtype()}, {n, n}, 111, 9);
    const std::vector<float> queries = MakeQueries(cache, 9, 112);
    const std::vector<int32_t> visible = CausalVisible(n - 9, 9, 2);
    ExpectSameBits(RunAttention(cache, queries, visible, 0.3f, AttentionKernelsScalar(), 1),
                   RunAttention(cache, queries, visible, 0.3f, kernels(), 2));
  }
}

INSTANTIATE_TEST_SUITE_P(All, AttentionInvarianceTest,
                         ::testing::Combine(::testing::ValuesIn(AllIsas()),
                                            ::testing::ValuesIn(kAllKvDTypes)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name +
                                  DTypeName(std::get<1>(test.param));
                         });

}  // namespace
}  // namespace headroom::kernels
