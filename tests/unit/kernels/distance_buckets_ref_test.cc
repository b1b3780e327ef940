// The reference backend's buckets and class masses beside the cpu backend's, on one cache each.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "base/philox.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/ref/ref_backend.h"

namespace headroom::kernels {
namespace {

constexpr int32_t kSlots = 90;
constexpr int32_t kRows = 20;
constexpr KvGeometry kGeometry = {2, 2, 24, KvDType::kF32};
constexpr int64_t kWidth = 4 * 24;

struct Result {
  std::vector<int64_t> buckets = std::vector<int64_t>(4 * 4 * kSlots);  // heads, buckets, slots
  std::vector<int64_t> masses = std::vector<int64_t>(kRows * 4 * 2);
};

Result RunBackend(Backend& backend) {
  const size_t page_bytes = backend.KvPageBytes(kGeometry);
  const auto buffer = backend.Allocate(page_bytes * 12).value();
  const KvArena arena = {buffer->data(), page_bytes, kGeometry};
  std::vector<float> row(48);
  std::vector<int32_t> pages(12);
  for (int32_t page = 0; page < 12; ++page) {
    pages[static_cast<size_t>(page)] = page;
  }
  for (int64_t slot = 0; slot < 12 * kPageSize; ++slot) {
    for (size_t d = 0; d < row.size(); ++d) {
      row[d] =
          static_cast<float>(2.0 * Philox(5).Uniform(static_cast<uint64_t>(slot) * 64 + d) - 1.0);
    }
    backend.WriteKvSlot(arena, slot, row.data(), row.data() + 24);
  }
  std::vector<float> queries(kRows * kWidth);
  for (size_t i = 0; i < queries.size(); ++i) {
    queries[i] = static_cast<float>(4.0 * Philox(6).Uniform(i) - 2.0);
  }
  const std::vector<KvHeadView> heads = {{pages.data(), kSlots}, {pages.data() + 6, kSlots}};
  std::vector<int32_t> visible;
  std::vector<uint8_t> classes;
  for (int32_t i = 0; i < kRows; ++i) {
    visible.insert(visible.end(), 2, kSlots - kRows + i + 1);
  }
  for (int32_t slot = 0; slot < kSlots; ++slot) {
    classes.push_back(static_cast<uint8_t>(slot % 3));
  }
  Result result;
  std::vector<int64_t*> sums;
  for (int64_t head = 0; head < 4; ++head) {
    sums.push_back(result.buckets.data() + head * 4 * kSlots);
  }
  const std::vector<int32_t> edges = {1, 16, 40};
  backend.ColumnScores({.queries = queries.data(),
                        .query_stride = kWidth,
                        .num_rows = kRows,
                        .visible = visible.data(),
                        .scale = 0.2f,
                        .arena = arena,
                        .heads = heads.data(),
                        .per_query_head = true,
                        .bucket_edges = edges,
                        .bucket_stride = kSlots,
                        .sums = sums});
  const std::vector<const uint8_t*> lists = {classes.data(), classes.data()};
  backend.ClassMasses({.queries = queries.data(),
                       .query_stride = kWidth,
                       .num_rows = kRows,
                       .visible = visible.data(),
                       .scale = 0.2f,
                       .arena = arena,
                       .heads = heads.data(),
                       .num_classes = 2,
                       .classes = lists,
                       .masses = result.masses.data()});
  return result;
}

TEST(DistanceBucketsRefTest, BothBackendsAgree) {
  const Result ref = RunBackend(*CreateRefBackend());
  const Result cpu = RunBackend(**CreateCpuBackend({.num_threads = 2}));
  // f32's error of a probability; roundings of up to twenty addends.
  for (size_t i = 0; i < ref.buckets.size(); ++i) {
    const auto expected = static_cast<double>(ref.buckets[i]);
    ASSERT_NEAR(static_cast<double>(cpu.buckets[i]), expected, 2e-5 * expected + 20) << i;
  }
  for (size_t i = 0; i < ref.masses.size(); ++i) {
    const auto expected = static_cast<double>(ref.masses[i]);
    ASSERT_NEAR(static_cast<double>(cpu.masses[i]), expected, 2e-5 * expected + 1) << i;
  }
}

// Class c of the reference backend is the sum of its buckets over the class's slots.
TEST(DistanceBucketsRefTest, ClassesAddUpToTheColumns) {
  const Result ref = RunBackend(*CreateRefBackend());
  for (size_t head = 0; head < 4; ++head) {
    for (size_t c = 0; c < 2; ++c) {
      int64_t mass = 0;
      for (size_t row = 0; row < kRows; ++row) {
        mass += ref.masses[(row * 4 + head) * 2 + c];
      }
      int64_t columns = 0;
      for (size_t i = 0; i < 4 * kSlots; ++i) {
        columns += i % kSlots % 3 == c ? ref.buckets[head * 4 * kSlots + i] : 0;
      }
      // A rounding for each of the addends.
      EXPECT_NEAR(static_cast<double>(mass), static_cast<double>(columns), kRows * kSlots / 2);
      EXPECT_GT(columns, kColumnUnit);
    }
  }
}

}  // namespace
}  // namespace headroom::kernels
