// Linear layers of the cpu backend against a double-precision oracle written from the definition:
// dequantised weight, row as the weight's core sees it, one dot product in double.

#include <gtest/gtest.h>

#include <cmath>
#include <iterator>

#include "tests/unit/kernels/linear_test_util.h"

namespace headroom::kernels {
namespace {

struct WeightKind {
  const char* name;
  DType dtype;
  bool exact_in_bf16;
};

constexpr WeightKind kKinds[] = {
    {"q4_0", DType::kQ4_0, false},       {"q4_1", DType::kQ4_1, false},
    {"q5_0", DType::kQ5_0, false},       {"q5_1", DType::kQ5_1, false},
    {"q8_0", DType::kQ8_0, false},       {"bf16", DType::kBF16, false},
    {"f32_exact", DType::kF32, true},    {"f16_exact", DType::kF16, true},
    {"f32_inexact", DType::kF32, false}, {"f16_inexact", DType::kF16, false},
};

constexpr int kNumQuantKinds = 5;

struct OracleSum {
  double value = 0.0;
  double magnitude = 0.0;  // sum of |weight * x|, for the bound
};

OracleSum Dot(const std::vector<float>& weight, const std::vector<double>& x) {
  OracleSum sum;
  for (size_t k = 0; k < weight.size(); ++k) {
    const double product = static_cast<double>(weight[k]) * x[k];
    sum.value += product;
    sum.magnitude += std::fabs(product);
  }
  return sum;
}

// f32 accumulation in any order: at most one rounding of the running magnitude per term, and the
// scales of core Q are rounded a few times more. The minimum of q4_1 and q5_1 is added apart from
// the quants, so that the two parts may be larger than their sum: a factor of 8 covers these
// blocks.
double Bound(const OracleSum& sum, int64_t cols, Core core) {
  const double terms = core == Core::kQuant ? 8.0 * (static_cast<double>(cols) / 16.0 + 4.0)
                                            : static_cast<double>(cols) + 2.0;
  return terms * 0x1p-24 * sum.magnitude + 1e-30;
}

class LinearOracleTest : public testing::TestWithParam<WeightKind> {};
class LinearOddWidthTest : public testing::TestWithParam<WeightKind> {};

void CheckAgainstOracle(Backend& backend, const WeightKind& kind, int64_t rows, int64_t cols) {
  SCOPED_TRACE(testing::Message() << backend.isa() << " " << kind.name << " [" << rows << ", "
                                  << cols << "]");
  const StoredTensor tensor = RandomTensor(kind.dtype, rows, cols, 7, kind.exact_in_bf16);
  const auto weight = backend.Pack(std::vector<TensorView>{tensor.view()});
  ASSERT_TRUE(weight.ok());
  ASSERT_EQ((*weight)->rows(), rows);
  ASSERT_EQ((*weight)->cols(), cols);
  const int64_t num_rows = 3;
  const LinearCall call{.x = RandomRows(num_rows, cols, 8), .num_rows = num_rows};
  const std::vector<float> out = RunLinear(backend, **weight, call);
  const Core core = CoreOf(kind.dtype, kind.exact_in_bf16);
  for (int64_t r = 0; r < num_rows; ++r) {
    const std::vector<double> x = ConvertedRow(core, call.x.data() + r * cols, cols);
    for (int64_t n = 0; n < rows; ++n) {
      const OracleSum want = Dot(tensor.Row(n), x);
      ASSERT_NEAR(out[static_cast<size_t>(r * rows + n)], want.value, Bound(want, cols, core))
          << "row " << r << " column " << n;
    }
  }
}

TEST_P(LinearOracleTest, MatchesTheDoubleDotProduct) {
  for (const auto& backend : AllBackends(1)) {
    for (const int64_t cols : {32, 96, 576}) {
      for (const int64_t rows : {1, 15, 64, 65, 130}) {
        CheckAgainstOracle(*backend, GetParam(), rows, cols);
      }
    }
  }
}

// Plain types alone: the width of block formats is a multiple of 32 by definition.
TEST_P(LinearOddWidthTest, MatchesTheDoubleDotProduct) {
  for (const auto& backend : AllBackends(1)) {
    for (const int64_t cols : {1, 7, 31, 33, 65}) {
      CheckAgainstOracle(*backend, GetParam(), 70, cols);
    }
  }
}

std::string KindName(const testing::TestParamInfo<WeightKind>& kind) { return kind.param.name; }

INSTANTIATE_TEST_SUITE_P(AllKinds, LinearOracleTest, testing::ValuesIn(kKinds), KindName);
INSTANTIATE_TEST_SUITE_P(PlainKinds, LinearOddWidthTest,
                         testing::ValuesIn(kKinds + kNumQuantKinds, std::end(kKinds)), KindName);

TEST(LinearNormTest, NormalisesTheRowFirst) {
  const int64_t cols = 70;
  const StoredTensor tensor = RandomTensor(DType::kF32, 20, cols, 1);
  LinearCall call{.x = RandomRows(2, cols, 2), .num_rows = 2};
  call.norm_weight = RandomRows(1, cols, 3);
  for (const auto& backend : AllBackends(1)) {
    const auto weight = backend->Pack(std::vector<TensorView>{tensor.view()});
    ASSERT_TRUE(weight.ok());
    const std::vector<float> out = RunLinear(*backend, **weight, call);
    for (int64_t r = 0; r < 2; ++r) {
      double squares = 0.0;
      std::vector<double> x(call.x.data() + r * cols, call.x.data() + (r + 1) * cols);
      for (const double v : x) {
        squares += v * v;
      }
      for (size_t k = 0; k < x.size(); ++k) {
        x[k] *= static_cast<double>(call.norm_weight[k]) /
                std::sqrt(squares / static_cast<double>(cols) + 1e-5);
      }
      for (int64_t n = 0; n < 20; ++n) {
        const OracleSum want = Dot(tensor.Row(n), x);
        // Rounding of the norm (a few ulp of each value) and of the sum.
        ASSERT_NEAR(out[static_cast<size_t>(r * 20 + n)], want.value,
                    (static_cast<double>(cols) + 16.0) * 0x1p-24 * want.magnitude);
      }
    }
  }
}

TEST(LinearEpilogueTest, AddAddsOnceToWhatIsThere) {
  const StoredTensor tensor = RandomTensor(DType::kQ4_1, 75, 64, 1);
  for (const auto& backend : AllBackends(1)) {
    const auto weight = backend->Pack(std::vector<TensorView>{tensor.view()});
    ASSERT_TRUE(weight.ok());
    LinearCall call{.x = RandomRows(5, 64, 2), .num_rows = 5};
    const std::vector<float> stored = RunLinear(*backend, **weight, call);
    call.epilogue = LinearEpilogue::kAdd;
    call.initial = RandomRows(5, 75, 3);
    const std::vector<float> added = RunLinear(*backend, **weight, call);
    for (size_t i = 0; i < added.size(); ++i) {
      ASSERT_EQ(added[i], call.initial[i] + stored[i]);
    }
  }
}

// gate and up of these types; their products with the same rows give the wanted value.
void CheckSiluMul(Backend& backend, DType gate_dtype, DType up_dtype) {
  SCOPED_TRACE(testing::Message() << backend.isa() << " " << GetDTypeInfo(gate_dtype).name << " "
                                  << GetDTypeInfo(up_dtype).name);
  const int64_t width = 90;
  const StoredTensor gate = RandomTensor(gate_dtype, width, 96, 1);
  const StoredTensor up = RandomTensor(up_dtype, width, 96, 2);
  const auto pair = backend.PackGateUp(gate.view(), up.view());
  const auto gate_only = backend.Pack(std::vector<TensorView>{gate.view()});
  const auto up_only = backend.Pack(std::vector<TensorView>{up.view()});
  ASSERT_TRUE(pair.ok() && gate_only.ok() && up_only.ok());
  LinearCall call{.x = RandomRows(50, 96, 3), .num_rows = 50};
  const std::vector<float> g = RunLinear(backend, **gate_only, call);
  const std::vector<float> u = RunLinear(backend, **up_only, call);
  call.epilogue = LinearEpilogue::kSiluMul;
  const std::vector<float> out = RunLinear(backend, **pair, call);
  for (size_t i = 0; i < out.size(); ++i) {
    const double gate_value = static_cast<double>(g[i]);
    const double want = gate_value / (1.0 + std::exp(-gate_value)) * static_cast<double>(u[i]);
    // exp within 2 ulp, then four roundings.
    ASSERT_NEAR(out[i], want, 8 * 0x1p-24 * std::fabs(want) + 1e-30);
  }
}

TEST(LinearEpilogueTest, SiluMulGatesUp) {
  for (const auto& backend : AllBackends(1)) {
    CheckSiluMul(*backend, DType::kQ4_1, DType::kQ4_1);
    CheckSiluMul(*backend, DType::kBF16, DType::kBF16);
    CheckSiluMul(*backend, DType::kF32, DType::kF32);
    CheckSiluMul(*backend, DType::kQ4_1, DType::kQ8_0);
    CheckSiluMul(*backend, DType::kQ5_1, DType::kF32);
  }
}

TEST(LinearStackTest, PartsOfDifferentTypesGiveWhatTheyGiveAlone) {
  const std::vector<StoredTensor> parts = {
      RandomTensor(DType::kQ4_1, 100, 64, 1), RandomTensor(DType::kQ5_1, 30, 64, 2),
      RandomTensor(DType::kF32, 64, 64, 3), RandomTensor(DType::kBF16, 1, 64, 4),
      RandomTensor(DType::kQ8_0, 65, 64, 5)};
  std::vector<TensorView> views;
  for (const StoredTensor& part : parts) {
    views.push_back(part.view());
  }
  const LinearCall call{.x = RandomRows(13, 64, 6), .num_rows = 13};
  for (const auto& backend : AllBackends(1)) {
    const auto stacked = backend->Pack(views);
    ASSERT_TRUE(stacked.ok());
    const std::vector<float> all = RunLinear(*backend, **stacked, call);
    const int64_t all_cols = (*stacked)->rows();
    int64_t first_col = 0;
    for (const TensorView& view : views) {
      const auto alone = backend->Pack(std::vector<TensorView>{view});
      ASSERT_TRUE(alone.ok());
      const std::vector<float> want = RunLinear(*backend, **alone, call);
      for (int64_t r = 0; r < call.num_rows; ++r) {
        for (int64_t n = 0; n < view.rows; ++n) {
          ASSERT_EQ(all[static_cast<size_t>(r * all_cols + first_col + n)],
                    want[static_cast<size_t>(r * view.rows + n)]);
        }
      }
      first_col += view.rows;
    }
  }
}

}  // namespace
}  // namespace headroom::kernels
