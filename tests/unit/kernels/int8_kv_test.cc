// What int8 adds to a KV cache: rounding within half a scale, and a scale of its token alone.
// The definition is KvDType::kInt8 in kernels/ops.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/ref/ref_backend.h"
#include "tests/unit/kernels/attention_test_util.h"

namespace headroom::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A slot's K and V.
struct Slot {
  std::vector<float> k;
  std::vector<float> v;
};

Slot ReadSlot(const KvArena& arena, int64_t slot) {
  const auto dim = static_cast<size_t>(arena.geometry.head_dim);
  Slot read = {std::vector<float>(dim), std::vector<float>(dim)};
  AttentionOps::ReadKvSlot(arena, slot, read.k.data(), read.v.data());
  return read;
}

// Runs everything that touches an int8 cache on one instruction set.
class Int8KvTest : public ::testing::TestWithParam<IsaCase> {
 protected:
  void SetUp() override {
    if (!GetParam().is_supported) {
      GTEST_SKIP() << SkipText(GetParam());
    }
  }

  // Stores unrotated rows of [query | key | value] of one KV head in slots 0, 1, ... of the cache.
  void Store(const TestCache& cache, std::vector<float> qkv) const {
    const int32_t dim = cache.geometry.head_dim;
    const int64_t num_rows = static_cast<int64_t>(qkv.size()) / (3 * dim);
    const auto num_pairs = static_cast<size_t>(num_rows * dim / 2);
    const std::vector<float> cos(num_pairs, 1.0f);
    const std::vector<float> sin(num_pairs, 0.0f);
    std::vector<int64_t> slots;
    for (int32_t r = 0; r < num_rows; ++r) {
      slots.push_back(cache.SlotOf(0, r));
    }
    ThreadPool pool(1);
    AttentionOps ops(GetParam().kernels(), &pool);
    ops.RopeStore({.qkv = qkv.data(),
                   .qkv_stride = 3 * dim,
                   .num_rows = num_rows,
                   .cos = cos.data(),
                   .sin = sin.data(),
                   .arena = cache.arena,
                   .dst_slots = slots.data()});
  }
};

// Rows of [query | key | value], token r of a magnitude of its own between 1e-4 and 1e4.
std::vector<float> MakeRows(int32_t num_rows, int32_t dim, uint64_t seed) {
  std::vector<float> rows;
  const auto width = static_cast<uint64_t>(dim);
  for (uint64_t r = 0; r < static_cast<uint64_t>(num_rows); ++r) {
    for (uint64_t d = 0; d < 3 * width; ++d) {
      const float exponent = 4.0f * TestValue(seed, (r << 12) + 4000 + d / width);
      rows.push_back(std::pow(10.0f, exponent) * TestValue(seed, (r << 12) + d));
    }
  }
  return rows;
}

TEST_P(Int8KvTest, AValueIsOffByHalfItsTokensScaleAtMost) {
  for (const int32_t dim : {2, 32, 64, 80, 96, 100, 128, 256}) {
    SCOPED_TRACE("head_dim " + std::to_string(dim));
    const TestCache cache({1, 1, dim, KvDType::kInt8}, {40}, 1, 3);
    const std::vector<float> rows = MakeRows(40, dim, 200 + static_cast<uint64_t>(dim));
    Store(cache, rows);
    for (int32_t r = 0; r < 40; ++r) {
      const Slot slot = ReadSlot(cache.arena, cache.SlotOf(0, r));
      for (const bool is_key : {true, false}) {
        const float* x = rows.data() + (3 * r + (is_key ? 1 : 2)) * dim;
        const std::vector<float>& stored = is_key ? slot.k : slot.v;
        // The scale, in doubles; f32 rounds it, the quotient and the product (2^-24 each, of up to
        // 127 scales).
        const double scale =
            std::abs(*std::max_element(
                x, x + dim, [](float a, float b) { return std::abs(a) < std::abs(b); })) /
            127.0;
        for (int32_t d = 0; d < dim; ++d) {
          ASSERT_LE(std::abs(double{x[d]} - stored[static_cast<size_t>(d)]),
                    scale * (0.5 + 3 * 127 * 0x1p-24));
        }
      }
    }
  }
}

TEST_P(Int8KvTest, ANeighboursValuesNeverChangeATokensScale) {
  const int32_t dim = 48;
  const std::vector<float> rows = MakeRows(33, dim, 7);
  for (const float factor : {0.0f, 1e-3f, 1e3f}) {
    for (const int32_t changed : {0, 7, 15, 16, 32}) {
      SCOPED_TRACE("token " + std::to_string(changed) + " times " + std::to_string(factor));
      std::vector<float> other_rows = rows;
      for (int32_t d = 0; d < 3 * dim; ++d) {
        other_rows[static_cast<size_t>(3 * changed * dim + d)] *= factor;
      }
      const TestCache cache({1, 1, dim, KvDType::kInt8}, {33}, 1, 3);
      Store(cache, other_rows);
      for (int32_t r = 0; r < 33; ++r) {
        const float* key = other_rows.data() + (3 * r + 1) * dim;
        const Slot slot = ReadSlot(cache.arena, cache.SlotOf(0, r));
        ASSERT_EQ(slot.k, AsStored({key, static_cast<size_t>(dim)}, KvDType::kInt8));
        ASSERT_EQ(slot.v, AsStored({key + dim, static_cast<size_t>(dim)}, KvDType::kInt8));
      }
    }
  }
}

TEST_P(Int8KvTest, TokensOfAnyMagnitudeKeepTheirOwnScaleInAttention) {
  // Magnitudes of K and V differ up to 16-fold from token to token: a scale taken from anywhere
  // else would be off by far more than the tolerance (that of attention_oracle_test).
  for (const int32_t dim : {32, 64, 80, 96, 128}) {
    for (const int32_t group : {1, 3, 4, 8}) {
      SCOPED_TRACE("head_dim " + std::to_string(dim) + " group " + std::to_string(group));
      const uint64_t seed = static_cast<uint64_t>(1000 * dim + group);
      for (const int32_t n : {15, 16, 17, 64 + 3 * group, 530}) {
        const TestCache cache({2, group, dim, KvDType::kInt8}, {n, n / 2 + 1}, seed, 5, 4.0f);
        const std::vector<float> queries = MakeQueries(cache, 3, seed + 1);
        const std::vector<int32_t> visible = {n, n / 2 + 1, n - 1, 1, (n + 1) / 2, (n + 3) / 4};
        const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
        const auto out = RunAttention(cache, queries, visible, scale, GetParam().kernels(), 1);
        const AttentionOracle oracle = ComputeAttentionOracle(cache, queries, visible, scale);
        for (size_t i = 0; i < out.size(); ++i) {
          ASSERT_LE(std::abs(out[i] - oracle.out[i]), 2e-5 * oracle.bound[i] + 1e-7);
        }
      }
    }
  }
}

TEST_P(Int8KvTest, ZeroAndTinyVectorsAreExactZeros) {
  const int32_t dim = 32;
  const TestCache cache({1, 1, dim, KvDType::kInt8}, {4}, 1, 0);
  for (const float value : {0.0f, -0.0f, 1e-37f, -1e-40f}) {
    Store(cache, std::vector<float>(static_cast<size_t>(4 * 3 * dim), value));
    const std::vector<float> zeros(static_cast<size_t>(dim));
    for (int32_t r = 0; r < 4; ++r) {
      const Slot slot = ReadSlot(cache.arena, cache.SlotOf(0, r));
      EXPECT_EQ(slot.k, zeros);
      EXPECT_EQ(slot.v, zeros);
    }
    const std::vector<float> out =
        RunAttention(cache, MakeQueries(cache, 2, 2), {4, 3}, 0.2f, GetParam().kernels(), 1);
    EXPECT_EQ(out, std::vector<float>(static_cast<size_t>(2 * dim)));
  }
}

TEST_P(Int8KvTest, TheLargestElementIsHeldExactlyUpToTheScalesRounding) {
  const TestCache cache({1, 1, 16, KvDType::kInt8}, {2}, 1, 0);
  std::vector<float> rows = MakeRows(2, 16, 3);
  rows[16] = 3.4e38f;  // a key, near the largest f32
  rows[17] = -3.4e38f;
  rows[80] = 0x1p-119f;  // the second token's value: its scale is just above the least normal
  std::fill(rows.begin() + 81, rows.begin() + 96, 0.0f);
  Store(cache, rows);
  const Slot first = ReadSlot(cache.arena, cache.SlotOf(0, 0));
  EXPECT_NEAR(first.k[0] / rows[16], 1.0f, 0x1p-22);
  EXPECT_NEAR(first.k[1] / rows[17], 1.0f, 0x1p-22);
  const Slot second = ReadSlot(cache.arena, cache.SlotOf(0, 1));
  EXPECT_NEAR(second.v[0] / rows[80], 1.0f, 0x1p-22);
  EXPECT_EQ(second.v[1], 0.0f);
}

TEST_P(Int8KvTest, AnInfinityOrNanDoesNotPassForANumberAndStaysInItsToken) {
  const int32_t dim = 20;
  for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    const TestCache cache({1, 1, dim, KvDType::kInt8}, {5}, 1, 0);
    std::vector<float> rows = MakeRows(5, dim, 4);
    const std::vector<float> clean = rows;
    rows[static_cast<size_t>((3 * 2 + 1) * dim + 17)] = bad;  // token 2's key
    rows[static_cast<size_t>((3 * 3 + 2) * dim + 3)] = bad;   // token 3's value
    Store(cache, rows);
    for (int32_t r = 0; r < 5; ++r) {
      const Slot slot = ReadSlot(cache.arena, cache.SlotOf(0, r));
      const float* key = clean.data() + (3 * r + 1) * dim;
      for (size_t d = 0; d < static_cast<size_t>(dim); ++d) {
        EXPECT_EQ(std::isnan(slot.k[d]), r == 2);
        EXPECT_EQ(std::isnan(slot.v[d]), r == 3);
      }
      if (r != 2) {
        EXPECT_EQ(slot.k, AsStored({key, static_cast<size_t>(dim)}, KvDType::kInt8));
      }
      if (r != 3) {
        EXPECT_EQ(slot.v, AsStored({key + dim, static_cast<size_t>(dim)}, KvDType::kInt8));
      }
    }
    const std::vector<float> out =
        RunAttention(cache, MakeQueries(cache, 2, 5), {5, 2}, 0.2f, GetParam().kernels(), 1);
    EXPECT_TRUE(std::isnan(out[0]));
    EXPECT_FALSE(std::isnan(out[static_cast<size_t>(dim)]));  // sees tokens 0 and 1 alone
  }
}

TEST_P(Int8KvTest, StoresTheBitsThatASlotWriteStores) {
  const int32_t dim = 80;
  const std::vector<float> rows = MakeRows(32, dim, 9);
  const TestCache stored({1, 1, dim, KvDType::kInt8}, {32}, 1, 0);
  const TestCache written({1, 1, dim, KvDType::kInt8}, {32}, 2, 0);
  Store(stored, rows);
  for (int32_t r = 0; r < 32; ++r) {
    const float* key = rows.data() + (3 * r + 1) * dim;
    AttentionOps::WriteKvSlot(written.arena, written.SlotOf(0, r), key, key + dim);
  }
  EXPECT_EQ(std::memcmp(stored.arena.base, written.arena.base, 2 * stored.arena.page_bytes), 0);
}

INSTANTIATE_TEST_SUITE_P(All, Int8KvTest, ::testing::ValuesIn(AllIsas()),
                         [](const auto& test) { return test.param.name; });

TEST(Int8KvMoveTest, AMovedSlotIsCopiedNotRoundedAgain) {
  // Rounding a rounded vector again changes the scale's last bit now and then: over a thousand
  // tokens moved back and forth it would show.
  const int32_t num_slots = 1008;
  const TestCache cache({1, 1, 24, KvDType::kInt8}, {num_slots + 1}, 6, 4, 1e3f);
  std::vector<Slot> before;
  std::vector<KvMove> moves;
  for (int32_t i = 0; i < num_slots; ++i) {
    before.push_back(ReadSlot(cache.arena, cache.SlotOf(0, i)));
  }
  // A slot to the right at a time, back, and so on; the end is to the right, so that whatever did
  // not move with its slot is missed.
  for (int32_t step = 0; step < 5; ++step) {
    for (int32_t i = 0; i < num_slots; ++i) {
      const int32_t left = step % 2 == 0 ? num_slots - 1 - i : i;
      const int64_t left_slot = cache.SlotOf(0, left);
      const int64_t right_slot = cache.SlotOf(0, left + 1);
      moves.push_back(step % 2 == 0 ? KvMove{left_slot, right_slot}
                                    : KvMove{right_slot, left_slot});
    }
  }
  const std::vector<std::span<const KvMove>> lists = {moves};
  ThreadPool pool(1);
  AttentionOps ops(AttentionKernelsScalar(), &pool);
  ops.MoveKv({.arena = cache.arena, .lists = lists});
  for (int32_t i = 0; i < num_slots; ++i) {
    const Slot after = ReadSlot(cache.arena, cache.SlotOf(0, i + 1));
    ASSERT_EQ(after.k, before[static_cast<size_t>(i)].k);
    ASSERT_EQ(after.v, before[static_cast<size_t>(i)].v);
  }
}

TEST(Int8KvReferenceTest, HoldsTheNumbersThatTheCpuBackendHolds) {
  auto ref = CreateRefBackend(1);
  for (const int32_t dim : {2, 64, 100}) {
    const KvGeometry geometry = {1, 1, dim, KvDType::kInt8};
    const TestCache cache(geometry, {40}, 11, 2, 1e3f);
    const size_t page_bytes = ref->KvPageBytes(geometry);
    EXPECT_EQ(page_bytes, static_cast<size_t>(16 * KvEntryBytes(KvDType::kInt8, dim)));
    auto memory = ref->Allocate(3 * page_bytes);
    ASSERT_TRUE(memory.ok());
    const KvArena arena = {(*memory)->data(), page_bytes, geometry};
    const std::vector<float> rows = MakeRows(40, dim, 12);
    for (int32_t r = 0; r < 40; ++r) {
      const float* key = rows.data() + (3 * r + 1) * dim;
      ref->WriteKvSlot(arena, r, key, key + dim);
      AttentionOps::WriteKvSlot(cache.arena, cache.SlotOf(0, r), key, key + dim);
    }
    for (int32_t r = 0; r < 40; ++r) {
      Slot slot = {std::vector<float>(static_cast<size_t>(dim)),
                   std::vector<float>(static_cast<size_t>(dim))};
      ref->ReadKvSlot(arena, r, slot.k.data(), slot.v.data());
      const Slot expected = ReadSlot(cache.arena, cache.SlotOf(0, r));
      EXPECT_EQ(slot.k, expected.k);
      EXPECT_EQ(slot.v, expected.v);
    }
  }
}

TEST(KvEntryBytesTest, CountElementsAndScales) {
  EXPECT_EQ(KvEntryBytes(KvDType::kF32, 64), 512);
  EXPECT_EQ(KvEntryBytes(KvDType::kBF16, 64), 256);
  EXPECT_EQ(KvEntryBytes(KvDType::kInt8, 64), 136);
  EXPECT_EQ(KvEntryBytes(KvDType::kInt8, 2), 12);
}

}  // namespace
}  // namespace headroom::kernels
