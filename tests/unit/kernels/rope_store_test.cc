// RopeStore, MoveKv and single slots of the cpu backend's pages.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/unit/kernels/attention_test_util.h"

namespace headroom::kernels {
namespace {

class RopeStoreTest : public ::testing::TestWithParam<std::tuple<IsaCase, KvDType>> {
 protected:
  void SetUp() override {
    if (!std::get<0>(GetParam()).is_supported) {
      GTEST_SKIP() << SkipText(std::get<0>(GetParam()));
    }
  }
  AttentionKernels kernels() const { return std::get<0>(GetParam()).kernels(); }
  KvDType dtype() const { return std::get<1>(GetParam()); }
};

// A call on random rows, with a copy of its input.
struct RopeCall {
  KvGeometry geometry;
  int64_t num_rows;
  int64_t stride;
  std::vector<float> qkv;
  std::vector<float> input;
  std::vector<float> cos;
  std::vector<float> sin;
  std::vector<int64_t> dst_slots;

  RopeCall(const KvGeometry& shape, int64_t rows, const TestCache& cache) : geometry(shape) {
    num_rows = rows;
    const int64_t heads = int64_t{shape.num_kv_heads} * (shape.group_size + 2);
    stride = heads * shape.head_dim + 5;
    for (int64_t i = 0; i < rows * stride; ++i) {
      qkv.push_back(2.0f * TestValue(7, static_cast<uint64_t>(i)));
    }
    input = qkv;
    for (int64_t i = 0; i < rows * (shape.head_dim / 2); ++i) {
      const double angle = 3.0 * TestValue(8, static_cast<uint64_t>(i));
      cos.push_back(static_cast<float>(std::cos(angle)));
      sin.push_back(static_cast<float>(std::sin(angle)));
    }
    for (int64_t r = 0; r < rows; ++r) {
      for (int32_t head = 0; head < shape.num_kv_heads; ++head) {
        // Head 1 keeps every other row only: its slots fall behind.
        const bool is_stored = head != 1 || r % 2 == 0;
        dst_slots.push_back(
            is_stored ? cache.SlotOf(head, static_cast<int32_t>(head == 1 ? r / 2 : r)) : -1);
      }
    }
  }

  void Run(const TestCache& cache, bool interleaved, const AttentionKernels& kernels,
           int num_threads) {
    ThreadPool pool(num_threads);
    AttentionOps ops(kernels, &pool);
    ops.RopeStore({.qkv = qkv.data(), .qkv_stride = stride, .num_rows = num_rows,
                   .cos = cos.data(), .sin = sin.data(), .interleaved = interleaved,
                   .arena = cache.arena, .dst_slots = dst_slots.data()});
  }

  // The rotated value by definition, in doubles.
  double Rotated(int64_t row, int64_t head, int32_t d, bool interleaved) const {
    const int32_t half = geometry.head_dim / 2;
    const int32_t pair = interleaved ? d / 2 : d % half;
    const bool is_second = interleaved ? d % 2 == 1 : d >= half;
    const int64_t base = row * stride + head * geometry.head_dim;
    const double x = input[static_cast<size_t>(base + (interleaved ? 2 * pair : pair))];
    const double y = input[static_cast<size_t>(base + (interleaved ? 2 * pair + 1 : pair + half))];
    const double c = cos[static_cast<size_t>(row * half + pair)];
    const double s = sin[static_cast<size_t>(row * half + pair)];
    return is_second ? y * c + x * s : x * c - y * s;
  }
};

TEST_P(RopeStoreTest, RotatesQueriesAndKeysAndLeavesValues) {
  for (const bool interleaved : {false, true}) {
    for (const int32_t head_dim : {2, 16, 48, 64, 80, 100, 128}) {
      SCOPED_TRACE("head_dim " + std::to_string(head_dim) + (interleaved ? " interleaved" : ""));
      const KvGeometry geometry = {2, 3, head_dim, dtype()};
      const TestCache cache(geometry, {19, 19}, 1, 3);
      RopeCall call(geometry, 19, cache);
      call.Run(cache, interleaved, kernels(), 2);
      for (int64_t r = 0; r < 19; ++r) {
        for (int64_t head = 0; head < 10; ++head) {
          for (int32_t d = 0; d < head_dim; ++d) {
            const size_t i = static_cast<size_t>(r * call.stride + head * head_dim + d);
            if (head >= 8) {
              ASSERT_EQ(call.qkv[i], call.input[i]);
            } else {
              // Two roundings of products below 2 each.
              ASSERT_NEAR(call.qkv[i], call.Rotated(r, head, d, interleaved), 4e-7);
            }
          }
        }
        for (int64_t i = (r + 1) * call.stride - 5; i < (r + 1) * call.stride; ++i) {
          ASSERT_EQ(call.qkv[static_cast<size_t>(i)], call.input[static_cast<size_t>(i)]);
        }
      }
    }
  }
}

TEST_P(RopeStoreTest, StoresRoundedKeysAndValuesInTheNamedSlotsOnly) {
  for (const int32_t head_dim : {2, 16, 48, 100, 128}) {
    SCOPED_TRACE("head_dim " + std::to_string(head_dim));
    const KvGeometry geometry = {2, 3, head_dim, dtype()};
    const TestCache cache(geometry, {40, 40}, 1, 3);
    RopeCall call(geometry, 33, cache);
    call.Run(cache, false, kernels(), 3);
    std::vector<float> k(static_cast<size_t>(head_dim));
    std::vector<float> v(k.size());
    for (int32_t head = 0; head < 2; ++head) {
      for (int32_t slot = 0; slot < 40; ++slot) {
        AttentionOps::ReadKvSlot(cache.arena, cache.SlotOf(head, slot), k.data(), v.data());
        const int64_t row = head == 1 ? 2 * slot : slot;
        std::vector<float> stored_k;
        std::vector<float> stored_v;
        if (row < 33) {
          const float* key = call.qkv.data() + row * call.stride + (6 + head) * head_dim;
          stored_k = AsStored({key, k.size()}, dtype());
          stored_v = AsStored({key + 2 * head_dim, k.size()}, dtype());
        }
        for (size_t d = 0; d < k.size(); ++d) {
          if (row < 33) {
            ASSERT_EQ(k[d], stored_k[d]);
            ASSERT_EQ(v[d], stored_v[d]);
          } else {
            const size_t i = static_cast<size_t>(slot * head_dim) + d;
            ASSERT_EQ(k[d], cache.k[static_cast<size_t>(head)][i]);
            ASSERT_EQ(v[d], cache.v[static_cast<size_t>(head)][i]);
          }
        }
      }
    }
  }
}

TEST_P(RopeStoreTest, HasTheScalarBitsWithAnyNumberOfThreads) {
  const KvGeometry geometry = {2, 4, 80, dtype()};
  const TestCache expected_cache(geometry, {70, 70}, 1, 3);
  RopeCall expected(geometry, 70, expected_cache);
  expected.Run(expected_cache, true, AttentionKernelsScalar(), 1);
  for (const int num_threads : {1, 2, 7}) {
    const TestCache cache(geometry, {70, 70}, 1, 3);
    RopeCall call(geometry, 70, cache);
    call.Run(cache, true, kernels(), num_threads);
    EXPECT_EQ(std::memcmp(call.qkv.data(), expected.qkv.data(), call.qkv.size() * 4), 0);
    const size_t bytes = cache.arena.page_bytes * 10;
    EXPECT_EQ(std::memcmp(cache.arena.base, expected_cache.arena.base, bytes), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, RopeStoreTest,
                         ::testing::Combine(::testing::ValuesIn(AllIsas()),
                                            ::testing::ValuesIn(kAllKvDTypes)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name +
                                  DTypeName(std::get<1>(test.param));
                         });

class KvSlotTest : public ::testing::TestWithParam<KvDType> {};

TEST_P(KvSlotTest, PagesAreWholeCacheLines) {
  for (int32_t head_dim = 2; head_dim <= 256; head_dim += 2) {
    const size_t padded = static_cast<size_t>((head_dim + 15) / 16 * 16);
    const size_t bytes = AttentionOps::KvPageBytes({1, 1, head_dim, GetParam()});
    const size_t scales = GetParam() == KvDType::kInt8 ? 2 * 16 * sizeof(float) : 0;
    EXPECT_EQ(bytes, 2 * 16 * padded * static_cast<size_t>(KvElementBytes(GetParam())) + scales);
    EXPECT_EQ(bytes % 64, 0u);
  }
}

TEST_P(KvSlotTest, ReadsBackWhatWasWritten) {
  for (const int32_t head_dim : {2, 16, 48, 100, 256}) {
    const TestCache cache({2, 1, head_dim, GetParam()}, {50, 17}, 5, 2);
    std::vector<float> k(static_cast<size_t>(head_dim));
    std::vector<float> v(k.size());
    for (int32_t head = 0; head < 2; ++head) {
      for (int32_t slot = 0; slot < (head == 0 ? 50 : 17); ++slot) {
        AttentionOps::ReadKvSlot(cache.arena, cache.SlotOf(head, slot), k.data(), v.data());
        for (size_t d = 0; d < k.size(); ++d) {
          const size_t i = static_cast<size_t>(slot * head_dim) + d;
          ASSERT_EQ(k[d], cache.k[static_cast<size_t>(head)][i]);
          ASSERT_EQ(v[d], cache.v[static_cast<size_t>(head)][i]);
        }
      }
    }
  }
}

TEST_P(KvSlotTest, MovesListsInOrderWhateverTheThreads) {
  for (const int num_threads : {1, 2, 3}) {
    const TestCache cache({2, 1, 20, GetParam()}, {64, 64}, 6, 4);
    // Compaction in place (each slot read before it is written), and a chain in order.
    std::vector<KvMove> compaction;
    for (int32_t i = 0; i < 20; ++i) {
      compaction.push_back({cache.SlotOf(0, 3 * i + 1), cache.SlotOf(0, i)});
    }
    const std::vector<KvMove> chain = {{cache.SlotOf(1, 0), cache.SlotOf(1, 1)},
                                       {cache.SlotOf(1, 1), cache.SlotOf(1, 40)}};
    const std::vector<std::span<const KvMove>> lists = {compaction, chain, {}};
    ThreadPool pool(num_threads);
    AttentionOps ops(AttentionKernelsScalar(), &pool);
    ops.MoveKv({.arena = cache.arena, .lists = lists});
    const auto expect_slot = [&](int32_t head, int32_t slot, int32_t from) {
      std::vector<float> k(20);
      std::vector<float> v(20);
      AttentionOps::ReadKvSlot(cache.arena, cache.SlotOf(head, slot), k.data(), v.data());
      for (size_t d = 0; d < 20; ++d) {
        const size_t i = static_cast<size_t>(from * 20) + d;
        ASSERT_EQ(k[d], cache.k[static_cast<size_t>(head)][i]);
        ASSERT_EQ(v[d], cache.v[static_cast<size_t>(head)][i]);
      }
    };
    for (int32_t i = 0; i < 20; ++i) {
      expect_slot(0, i, 3 * i + 1);
    }
    expect_slot(0, 63, 63);
    expect_slot(1, 1, 0);
    expect_slot(1, 40, 0);
    expect_slot(1, 2, 2);
  }
}

INSTANTIATE_TEST_SUITE_P(All, KvSlotTest, ::testing::ValuesIn(kAllKvDTypes),
                         [](const auto& test) { return DTypeName(test.param); });

}  // namespace
}  // namespace headroom::kernels
