// Packing: embedding rows come back exactly, impossible inputs are refused, backends are chosen.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/kernels/linear_test_util.h"

namespace headroom::kernels {
namespace {

using testing::HasSubstr;

constexpr DType kAllTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ8_0,
                               DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1};

std::vector<float> Embed(Backend& backend, const PackedWeight& weight,
                         const std::vector<int32_t>& ids) {
  const auto num_floats = ids.size() * static_cast<size_t>(weight.cols());
  auto out = backend.Allocate(num_floats * sizeof(float));
  EXPECT_TRUE(out.ok());
  backend.EmbedRows({.weight = &weight, .ids = ids, .out = (*out)->floats()});
  return {(*out)->floats(), (*out)->floats() + num_floats};
}

TEST(LinearEmbedTest, RowsAreTheExactDequantisedValues) {
  const std::vector<int32_t> ids = {0, 129, 63, 64, 15, 16, 64};
  for (const DType dtype : kAllTypes) {
    for (const bool exact_in_bf16 : {false, true}) {
      const StoredTensor tensor = RandomTensor(dtype, 130, 96, 3, exact_in_bf16);
      std::vector<float> want;
      for (const int32_t id : ids) {
        const std::vector<float> row = tensor.Row(id);
        want.insert(want.end(), row.begin(), row.end());
      }
      for (const auto& backend : AllBackends(2)) {
        auto weight = backend->Pack(std::vector<TensorView>{tensor.view()});
        ASSERT_TRUE(weight.ok());
        EXPECT_TRUE(SameBits(Embed(*backend, **weight, ids), want))
            << backend->isa() << " " << GetDTypeInfo(dtype).name;
      }
    }
  }
}

TEST(LinearEmbedTest, RowsOfStackedPartsFollowOneAnother) {
  const StoredTensor first = RandomTensor(DType::kF32, 3, 32, 1);
  const StoredTensor second = RandomTensor(DType::kQ4_0, 70, 32, 2);
  auto backend = CreateCpuBackend({.num_threads = 1});
  ASSERT_TRUE(backend.ok());
  auto weight = (*backend)->Pack(std::vector<TensorView>{first.view(), second.view()});
  ASSERT_TRUE(weight.ok());
  EXPECT_TRUE(SameBits(Embed(**backend, **weight, {2}), first.Row(2)));
  EXPECT_TRUE(SameBits(Embed(**backend, **weight, {3}), second.Row(0)));
  EXPECT_TRUE(SameBits(Embed(**backend, **weight, {72}), second.Row(69)));
}

TEST(LinearPackTest, BlockFormatsKeepTheirNativeSize) {
  auto backend = CreateCpuBackend({.num_threads = 1});
  ASSERT_TRUE(backend.ok());
  for (const DType dtype : kAllTypes) {
    if (IsQuantized(dtype) || dtype == DType::kBF16) {
      const StoredTensor tensor = RandomTensor(dtype, 128, 96, 3);
      auto weight = (*backend)->Pack(std::vector<TensorView>{tensor.view()});
      ASSERT_TRUE(weight.ok());
      EXPECT_EQ((*weight)->num_bytes(), tensor.bytes.size()) << GetDTypeInfo(dtype).name;
    }
  }
}

TEST(LinearPackTest, PlainTypesTakeTwoBytesWhereBf16IsExactAndFourElsewhere) {
  auto backend = CreateCpuBackend({.num_threads = 1});
  ASSERT_TRUE(backend.ok());
  for (const DType dtype : {DType::kF32, DType::kF16}) {
    for (const bool exact_in_bf16 : {false, true}) {
      const StoredTensor tensor = RandomTensor(dtype, 64, 64, 3, exact_in_bf16);
      auto weight = (*backend)->Pack(std::vector<TensorView>{tensor.view()});
      ASSERT_TRUE(weight.ok());
      EXPECT_EQ((*weight)->num_bytes(), size_t{64} * 64 * (exact_in_bf16 ? 2 : 4));
    }
  }
}

TEST(LinearPackTest, RefusesWhatCannotBeStacked) {
  auto backend = CreateCpuBackend({.num_threads = 1});
  ASSERT_TRUE(backend.ok());
  const StoredTensor wide = RandomTensor(DType::kF32, 4, 64, 1);
  const StoredTensor narrow = RandomTensor(DType::kF32, 4, 32, 1);
  const StoredTensor tall = RandomTensor(DType::kF32, 5, 64, 1);
  TensorView ragged = RandomTensor(DType::kQ4_0, 4, 64, 1).view();
  ragged.cols = 40;
  ragged.data = wide.bytes.data();
  EXPECT_FALSE((*backend)->Pack({}).ok());
  EXPECT_THAT(
      StatusMessage((*backend)->Pack(std::vector<TensorView>{wide.view(), narrow.view()}).status()),
      HasSubstr("64 and 32"));
  EXPECT_THAT(StatusMessage((*backend)->Pack(std::vector<TensorView>{ragged}).status()),
              HasSubstr("multiple of 32"));
  EXPECT_THAT(StatusMessage((*backend)->PackGateUp(wide.view(), tall.view()).status()),
              HasSubstr("4 and 5"));
}

TEST(CpuBackendTest, NamesItsIsaAndRefusesOthers) {
  auto backend = CreateCpuBackend({.isa = "scalar", .num_threads = 1});
  ASSERT_TRUE(backend.ok());
  EXPECT_EQ((*backend)->name(), "cpu");
  EXPECT_EQ((*backend)->isa(), "scalar");
  EXPECT_EQ((*backend)->default_kv_dtype(), KvDType::kBF16);
  const Status unknown = CreateCpuBackend({.isa = "avx1024"}).status();
  EXPECT_EQ(unknown.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(StatusMessage(unknown), HasSubstr("avx1024"));
  EXPECT_EQ(CreateCpuBackend({.num_threads = -1}).status().code(), StatusCode::kInvalidArgument);
}

TEST(CpuBackendTest, AutoTakesTheWidestIsaOfThisMachine) {
  auto backend = CreateCpuBackend({});
  ASSERT_TRUE(backend.ok());
  const char* want = CpuSupportsIsa("avx512") ? "avx512"
                     : CpuSupportsIsa("avx2") ? "avx2"
                                              : "scalar";
  EXPECT_EQ((*backend)->isa(), want);
}

TEST(CpuBackendTest, AllocatesAlignedZeroedMemory) {
  auto backend = CreateCpuBackend({.num_threads = 1});
  ASSERT_TRUE(backend.ok());
  for (const size_t num_bytes : {size_t{1}, size_t{5000}, size_t{5} << 20}) {
    auto buffer = (*backend)->Allocate(num_bytes);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ((*buffer)->num_bytes(), num_bytes);
    const auto* bytes = static_cast<const uint8_t*>((*buffer)->data());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes) % 64, 0u);
    EXPECT_EQ(std::count(bytes, bytes + num_bytes, 0), static_cast<ptrdiff_t>(num_bytes));
  }
  EXPECT_EQ((*backend)->Allocate(size_t{1} << 62).status().code(), StatusCode::kResourceExhausted);
}

TEST(CpuBackendTest, CopiesRowsByIndex) {
  auto backend = CreateCpuBackend({.num_threads = 1});
  ASSERT_TRUE(backend.ok());
  const std::vector<float> src = RandomRows(4, 6, 1);
  std::vector<float> dst(3 * 8, 9.0f);
  const std::vector<int64_t> src_rows = {3, 0};
  const std::vector<int64_t> dst_rows = {1, 2};
  (*backend)->CopyRows({.src = src.data(),
                        .src_stride = 6,
                        .dst = dst.data(),
                        .dst_stride = 8,
                        .width = 5,
                        .src_rows = src_rows,
                        .dst_rows = dst_rows});
  EXPECT_EQ(std::count(dst.begin(), dst.begin() + 8, 9.0f), 8);
  EXPECT_TRUE(std::equal(dst.begin() + 8, dst.begin() + 13, src.begin() + 18));
  EXPECT_TRUE(std::equal(dst.begin() + 16, dst.begin() + 21, src.begin()));
  EXPECT_EQ(dst[13], 9.0f);
}

}  // namespace
}  // namespace headroom::kernels
