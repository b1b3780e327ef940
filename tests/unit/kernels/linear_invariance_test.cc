// A row's result is the same bits on every ISA, beside any other rows and with any number of
// threads.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/unit/kernels/linear_test_util.h"

namespace headroom::kernels {
namespace {

constexpr DType kAllTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ8_0,
                               DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1};

std::unique_ptr<PackedWeight> PackOne(Backend& backend, const StoredTensor& tensor) {
  auto weight = backend.Pack(std::vector<TensorView>{tensor.view()});
  EXPECT_TRUE(weight.ok());
  return std::move(weight).value();
}

std::string Describe(const StoredTensor& tensor) {
  return std::string(GetDTypeInfo(tensor.dtype).name) + " [" + std::to_string(tensor.rows) + ", " +
         std::to_string(tensor.cols) + "]";
}

// All ISAs give the bits of the first.
void ExpectSameOnAllIsas(const StoredTensor& tensor, const LinearCall& call) {
  SCOPED_TRACE(Describe(tensor));
  std::vector<float> want;
  for (const auto& backend : AllBackends(1)) {
    const std::vector<float> out = RunLinear(*backend, *PackOne(*backend, tensor), call);
    if (want.empty()) {
      want = out;
    }
    ASSERT_TRUE(SameBits(out, want)) << backend->isa();
  }
}

class LinearIsaTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = MissingIsaMessage(); !missing.empty()) {
      GTEST_SKIP() << missing;
    }
  }
};

TEST_F(LinearIsaTest, EveryTypeGivesTheSameBits) {
  for (const DType dtype : kAllTypes) {
    for (const bool exact_in_bf16 : {false, true}) {
      for (const int64_t cols : {32, 96, 160}) {
        LinearCall call{.x = RandomRows(17, cols, 5), .num_rows = 17};
        call.norm_weight = RandomRows(1, cols, 6);
        ExpectSameOnAllIsas(RandomTensor(dtype, 70, cols, 4, exact_in_bf16), call);
      }
    }
  }
}

TEST_F(LinearIsaTest, WidthsThatAreNoMultipleOf32GiveTheSameBits) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int64_t cols : {1, 15, 33, 47}) {
      LinearCall call{.x = RandomRows(4, cols, 5), .num_rows = 4};
      call.norm_weight = RandomRows(1, cols, 6);
      ExpectSameOnAllIsas(RandomTensor(dtype, 20, cols, 4), call);
    }
  }
}

TEST_F(LinearIsaTest, SiluMulAndAddGiveTheSameBits) {
  for (const DType dtype : kAllTypes) {
    const StoredTensor gate = RandomTensor(dtype, 70, 64, 1);
    const StoredTensor up = RandomTensor(dtype, 70, 64, 2);
    LinearCall call{.x = RandomRows(3, 64, 3), .num_rows = 3};
    for (float& value : call.x) {
      value *= 10.0f;  // far into both tails of the sigmoid
    }
    call.epilogue = LinearEpilogue::kSiluMul;
    std::vector<float> want;
    for (const auto& backend : AllBackends(1)) {
      auto weight = backend->PackGateUp(gate.view(), up.view());
      ASSERT_TRUE(weight.ok());
      const std::vector<float> out = RunLinear(*backend, **weight, call);
      want = want.empty() ? out : want;
      ASSERT_TRUE(SameBits(out, want)) << backend->isa() << " " << Describe(gate);
    }
  }
}

TEST_F(LinearIsaTest, ExtremeRowsGiveTheSameBits) {
  constexpr int64_t kCols = 96;
  constexpr float kMagnitudes[] = {0.0f,   1e-45f, 1e-39f, 1e-37f, 1e-30f,
                                   1e-20f, 1e10f,  1e25f,  1e34f,  3e38f};
  LinearCall call;
  for (const float magnitude : kMagnitudes) {
    for (const float value : RandomRows(1, kCols, 9)) {
      call.x.push_back(std::fmax(-1.0f, std::fmin(1.0f, value)) * magnitude);
    }
    ++call.num_rows;
  }
  // Rows whose blocks differ by many orders of magnitude.
  for (int64_t k = 0; k < kCols; ++k) {
    call.x.push_back(std::ldexp(1.0f, static_cast<int>(k) - 60));
  }
  ++call.num_rows;
  for (const DType dtype : kAllTypes) {
    ExpectSameOnAllIsas(RandomTensor(dtype, 66, kCols, 4), call);
    ExpectSameOnAllIsas(RandomTensor(dtype, 66, kCols, 4, /*exact_in_bf16=*/true), call);
  }
}

TEST_F(LinearIsaTest, DenormalAndHugeWeightsGiveTheSameBits) {
  constexpr int64_t kCols = 64;
  const LinearCall call{.x = RandomRows(3, kCols, 5), .num_rows = 3};
  for (const bool exact_in_bf16 : {false, true}) {
    for (const float magnitude : {1e-40f, 1e-37f, 1e30f}) {
      StoredTensor tensor = RandomTensor(DType::kF32, 40, kCols, 4, exact_in_bf16);
      auto* values = reinterpret_cast<float*>(tensor.bytes.data());
      for (int64_t i = 0; i < tensor.rows * kCols; ++i) {
        const float scaled = values[i] * magnitude;
        values[i] = exact_in_bf16 ? Bf16ToFloat(FloatToBf16(scaled)) : scaled;
      }
      ExpectSameOnAllIsas(tensor, call);
    }
  }
  for (const DType dtype : {DType::kQ4_0, DType::kQ5_1, DType::kQ8_0}) {
    StoredTensor tensor = RandomTensor(dtype, 40, kCols, 4);
    for (size_t b = 0; b < tensor.bytes.size();
         b += static_cast<size_t>(GetDTypeInfo(dtype).block_bytes)) {
      tensor.bytes[b] = static_cast<uint8_t>(b);  // f16 scales: denormals and the largest
      tensor.bytes[b + 1] = b % 3 == 0 ? 0x00 : 0x7b;
    }
    ExpectSameOnAllIsas(tensor, call);
  }
}

TEST(LinearNanTest, ARowWithANanOrInfinityGivesNanAndSparesTheOthers) {
  constexpr int64_t kCols = 64;
  for (const DType dtype : kAllTypes) {
    const StoredTensor tensor = RandomTensor(dtype, 20, kCols, 4);
    LinearCall call{.x = RandomRows(3, kCols, 5), .num_rows = 3};
    for (const auto& backend : AllBackends(1)) {
      const auto weight = PackOne(*backend, tensor);
      const std::vector<float> clean = RunLinear(*backend, *weight, call);
      LinearCall poisoned = call;
      poisoned.x[kCols + 40] = std::numeric_limits<float>::quiet_NaN();
      const std::vector<float> out = RunLinear(*backend, *weight, poisoned);
      for (size_t n = 0; n < 20; ++n) {
        ASSERT_EQ(out[n], clean[n]);
        ASSERT_TRUE(std::isnan(out[20 + n])) << backend->isa() << " " << Describe(tensor);
        ASSERT_EQ(out[40 + n], clean[40 + n]);
      }
    }
  }
}

TEST(LinearRowsTest, ARowIsTheSameInACallOfAnySize) {
  constexpr int64_t kCols = 96;
  constexpr int64_t kMaxRows = 50;  // past the size where panels are unpacked first
  const std::vector<float> x = RandomRows(kMaxRows, kCols, 5);
  for (const DType dtype : kAllTypes) {
    const StoredTensor tensor = RandomTensor(dtype, 81, kCols, 4);
    for (const auto& backend : AllBackends(1)) {
      const auto weight = PackOne(*backend, tensor);
      std::vector<float> alone;
      for (int64_t r = 0; r < kMaxRows; ++r) {
        const std::vector<float> row =
            RunLinear(*backend, *weight,
                      {.x = {x.begin() + r * kCols, x.begin() + (r + 1) * kCols}, .num_rows = 1});
        alone.insert(alone.end(), row.begin(), row.end());
      }
      for (int64_t num_rows = 0; num_rows <= kMaxRows; num_rows += num_rows < 27 ? 1 : 9) {
        const std::vector<float> out =
            RunLinear(*backend, *weight,
                      {.x = {x.begin(), x.begin() + num_rows * kCols}, .num_rows = num_rows});
        ASSERT_TRUE(SameBits(out, {alone.begin(), alone.begin() + num_rows * tensor.rows}))
            << backend->isa() << " " << Describe(tensor) << " " << num_rows << " rows";
      }
    }
  }
}

TEST(LinearThreadsTest, AnyNumberOfThreadsGivesTheSameBits) {
  for (const DType dtype : {DType::kQ4_1, DType::kBF16, DType::kF32}) {
    const StoredTensor tensor = RandomTensor(dtype, 700, 64, 4);
    for (const int64_t num_rows : {1, 5, 100}) {
      const LinearCall call{.x = RandomRows(num_rows, 64, 5), .num_rows = num_rows};
      std::vector<float> want;
      for (const int num_threads : {1, 2, 3, 7}) {
        auto backend = CreateCpuBackend({.num_threads = num_threads});
        ASSERT_TRUE(backend.ok());
        const std::vector<float> out = RunLinear(**backend, *PackOne(**backend, tensor), call);
        want = want.empty() ? out : want;
        ASSERT_TRUE(SameBits(out, want)) << num_threads << " threads, " << Describe(tensor);
      }
    }
  }
}

TEST(LinearWorkspaceTest, ReservedScratchGivesTheSameBitsAsGrownScratch) {
  const StoredTensor tensor = RandomTensor(DType::kQ4_1, 64, 96, 4);
  const LinearCall call{.x = RandomRows(30, 96, 5), .num_rows = 30};
  auto grown = CreateCpuBackend({.num_threads = 1});
  auto reserved = CreateCpuBackend({.num_threads = 1});
  ASSERT_TRUE(grown.ok() && reserved.ok());
  ASSERT_TRUE((*reserved)->ReserveWorkspace({.max_rows = 64, .max_cols = 128}).ok());
  EXPECT_TRUE(SameBits(RunLinear(**grown, *PackOne(**grown, tensor), call),
                       RunLinear(**reserved, *PackOne(**reserved, tensor), call)));
}

}  // namespace
}  // namespace headroom::kernels
