// The simd layer: equal bits on every instruction set, and the accuracy of its functions.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/flush_denormals.h"
#include "base/philox.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/unit/kernels/simd_probe.h"

namespace headroom::kernels {
namespace {

struct ProbeCase {
  const char* name;
  bool is_supported;
  SimdProbe (*probe)();
};

class SimdTest : public ::testing::TestWithParam<ProbeCase> {
 protected:
  void SetUp() override {
    if (!GetParam().is_supported) {
      GTEST_SKIP() << "hardware: this machine lacks " << GetParam().name;
    }
  }
  const ScopedFlushDenormals flush_;  // the contract holds under FTZ and DAZ
};

uint32_t RandomBits(uint64_t seed, uint64_t index) { return Philox(seed).Block(index)[0]; }

// Numbers of every exponent, among them denormals, infinities and NaNs.
std::vector<float> AnyFloats(uint64_t seed, size_t n) {
  std::vector<float> x;
  for (size_t i = 0; i < n; ++i) {
    x.push_back(std::bit_cast<float>(RandomBits(seed, i)));
  }
  const float special[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1e-40f, -1e-40f, 1.17549435e-38f};
  std::copy(std::begin(special), std::end(special), x.begin());
  return x;
}

bool SameBits(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

void ExpectSameAsScalar(void (*function)(const float*, float*, int),
                        void (*scalar)(const float*, float*, int), const std::vector<float>& x) {
  std::vector<float> y(x.size());
  std::vector<float> expected(x.size());
  function(x.data(), y.data(), static_cast<int>(x.size()));
  scalar(x.data(), expected.data(), static_cast<int>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_TRUE(SameBits(y[i], expected[i])) << "at " << x[i] << ": " << y[i] << " and "
                                             << expected[i];
  }
}

TEST_P(SimdTest, FunctionsHaveTheScalarBits) {
  const SimdProbe probe = GetParam().probe();
  const SimdProbe scalar = SimdProbeScalar();
  std::vector<float> x = AnyFloats(1, 16384);
  ExpectSameAsScalar(probe.exp, scalar.exp, x);
  ExpectSameAsScalar(probe.rsqrt, scalar.rsqrt, x);
  ExpectSameAsScalar(probe.round_to_bf16, scalar.round_to_bf16, x);
  for (float& value : x) {
    value = -std::abs(std::fmod(value, 100.0f));
  }
  ExpectSameAsScalar(probe.exp_non_positive, scalar.exp_non_positive, x);
  ExpectSameAsScalar(probe.exp, scalar.exp_non_positive, x);
}

TEST_P(SimdTest, ExpIsWithinTwoUlp) {
  const SimdProbe probe = GetParam().probe();
  std::vector<float> x;
  for (int i = 0; i < 1 << 20; ++i) {
    x.push_back(static_cast<float>(-87.3 + i * (175.9 / (1 << 20))));
  }
  for (int i = 0; i < 1 << 12; ++i) {
    x.push_back(std::ldexp(1.0f + static_cast<float>(i % 64) / 64.0f, -(i / 64)));
  }
  std::vector<float> y(x.size());
  probe.exp(x.data(), y.data(), static_cast<int>(x.size()));
  double worst = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(double{x[i]});
    const double ulp = std::ldexp(1.0, std::ilogb(exact) - 23);
    worst = std::max(worst, std::abs(y[i] - exact) / ulp);
  }
  EXPECT_LE(worst, 2.0);
  RecordProperty("worst_ulp", std::to_string(worst));
}

TEST_P(SimdTest, ExpHandlesTheEndsOfItsRange) {
  const SimdProbe probe = GetParam().probe();
  const float x[16] = {-INFINITY, INFINITY, NAN, 0.0f, -0.0f, -1e30f, 1e30f, -88.0f,
                       89.0f, 88.7f, -87.3f, std::bit_cast<float>(0x7fc00001u),
                       std::bit_cast<float>(0xffffffffu), 1e-40f, 88.72284f, -103.0f};
  float y[16];
  probe.exp(x, y, 16);
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_EQ(y[1], INFINITY);
  EXPECT_TRUE(std::isnan(y[2]));
  EXPECT_EQ(y[3], 1.0f);
  EXPECT_EQ(y[4], 1.0f);
  EXPECT_EQ(y[5], 0.0f);
  EXPECT_EQ(y[6], INFINITY);
  EXPECT_EQ(y[7], 0.0f);
  EXPECT_EQ(y[8], INFINITY);
  EXPECT_TRUE(std::isfinite(y[9]));
  EXPECT_GT(y[10], 0.0f);
  EXPECT_TRUE(std::isnan(y[11]));
  EXPECT_TRUE(std::isnan(y[12]));
  EXPECT_EQ(y[13], 1.0f);
  EXPECT_EQ(y[14], INFINITY);
  EXPECT_EQ(y[15], 0.0f);
  probe.exp_non_positive(x, y, 16);
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_TRUE(std::isnan(y[2]));
  EXPECT_TRUE(std::isnan(y[11]));
  EXPECT_TRUE(std::isnan(y[12]));
}

// acc + odd product, then + even product, each rounded once, denormals flushed at every step.
float DotPairByDefinition(float acc, uint16_t a_even, uint16_t a_odd, uint16_t b_even,
                          uint16_t b_odd) {
  const auto value = [](uint16_t bits) {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  };
  return std::fma(value(a_even), value(b_even), std::fma(value(a_odd), value(b_odd), acc));
}

TEST_P(SimdTest, DotBf16PairAddsTheOddProductThenTheEvenOne) {
  const SimdProbe probe = GetParam().probe();
  const int n = 1 << 16;
  for (const bool is_any : {false, true}) {
    std::vector<float> acc(static_cast<size_t>(n));
    std::vector<uint16_t> a(static_cast<size_t>(2 * n));
    std::vector<uint16_t> b(static_cast<size_t>(2 * n));
    for (size_t i = 0; i < acc.size(); ++i) {
      const auto words = Philox(is_any ? 7 : 8).Block(i);
      const uint32_t keep = is_any ? 0xffffffffu : 0x83ff83ffu;  // else exponents near 2^0
      const uint32_t set = is_any ? 0u : 0x3c003c00u;
      acc[i] = std::bit_cast<float>((words[0] & (is_any ? 0xffffffffu : 0x83ffffffu)) |
                                    (is_any ? 0u : 0x3c000000u));
      const uint32_t a_bits = (words[1] & keep) | set;
      const uint32_t b_bits = (words[2] & keep) | set;
      std::memcpy(&a[2 * i], &a_bits, 4);
      std::memcpy(&b[2 * i], &b_bits, 4);
    }
    std::vector<float> y(acc.size());
    probe.dot_bf16_pair(acc.data(), a.data(), b.data(), y.data(), n);
    for (size_t i = 0; i < acc.size(); ++i) {
      const float expected =
          DotPairByDefinition(acc[i], a[2 * i], a[2 * i + 1], b[2 * i], b[2 * i + 1]);
      ASSERT_TRUE(SameBits(y[i], expected)) << "sum " << i << ": " << y[i] << ", wanted "
                                            << expected;
    }
  }
}

TEST_P(SimdTest, Bf16RoundsToNearestEvenAndFlushesDenormals) {
  const SimdProbe probe = GetParam().probe();
  const uint32_t bits[16] = {0x3f808000, 0x3f818000, 0x3f808001, 0x3f807fff, 0x7f7fffff, 0xff7fffff,
                             0x00000001, 0x807fffff, 0x00800000, 0x7f800000, 0xff800000, 0x7fc00000,
                             0x7f800001, 0x80000000, 0x007fffff, 0xbf80c000};
  const uint16_t expected[16] = {0x3f80, 0x3f82, 0x3f81, 0x3f80, 0x7f80, 0xff80, 0x0000, 0x8000,
                                 0x0080, 0x7f80, 0xff80, 0x7fc0, 0x7fc0, 0x8000, 0x0000, 0xbf81};
  float x[16];
  std::memcpy(x, bits, sizeof(x));
  uint16_t y[16];
  probe.to_bf16(x, y, 16);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(y[i], expected[i]) << "lane " << i;
  }
  const std::vector<float> any = AnyFloats(3, 1 << 16);
  std::vector<uint16_t> out(any.size());
  std::vector<uint16_t> scalar(any.size());
  probe.to_bf16(any.data(), out.data(), 1 << 16);
  SimdProbeScalar().to_bf16(any.data(), scalar.data(), 1 << 16);
  EXPECT_EQ(out, scalar);
}

TEST_P(SimdTest, LoadsEveryF16AndBf16) {
  const SimdProbe probe = GetParam().probe();
  std::vector<uint16_t> halves(1 << 16);
  for (size_t i = 0; i < halves.size(); ++i) {
    halves[i] = static_cast<uint16_t>(i);
  }
  std::vector<float> y(halves.size());
  std::vector<float> scalar(halves.size());
  probe.from_bf16(halves.data(), y.data(), 1 << 16);
  for (size_t i = 0; i < halves.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(y[i]), i << 16);
  }
  probe.from_f16(halves.data(), y.data(), 1 << 16);
  for (size_t i = 0; i < halves.size(); ++i) {
    const int exponent = static_cast<int>(i >> 10 & 31);
    const double fraction = static_cast<double>(i & 1023) / 1024.0;
    double expected = exponent == 0 ? std::ldexp(fraction, -14)
                                    : std::ldexp(1.0 + fraction, exponent - 15);
    if (exponent == 31) {
      expected = (i & 1023) == 0 ? std::numeric_limits<double>::infinity() : NAN;
    }
    ASSERT_TRUE(SameBits(y[i], static_cast<float>((i >> 15) != 0 ? -expected : expected)))
        << "f16 " << i << ": " << y[i];
  }
}

TEST_P(SimdTest, ReducesByOneTree) {
  const SimdProbe probe = GetParam().probe();
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    float x[16];
    for (uint64_t i = 0; i < 16; ++i) {
      x[i] = std::bit_cast<float>((RandomBits(seed, i) & 0x83ffffffu) | 0x3c000000u);
    }
    float tree[16];
    std::copy(std::begin(x), std::end(x), tree);
    for (int half = 8; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) {
        tree[i] += tree[i + half];
      }
    }
    ASSERT_EQ(probe.reduce_add(x), tree[0]);
    ASSERT_EQ(probe.reduce_max(x), *std::max_element(std::begin(x), std::end(x)));
  }
}

TEST_P(SimdTest, PartialLoadsAndStoresTouchTheirLanesOnly) {
  const SimdProbe probe = GetParam().probe();
  for (int n = 0; n <= 16; ++n) {
    // The source ends where the lanes do, so that a sanitizer sees a read beyond.
    const std::vector<float> x(static_cast<size_t>(n), 2.0f);
    std::vector<float> y(17, -1.0f);
    probe.copy_first(x.data(), y.data(), n);
    for (int i = 0; i < 17; ++i) {
      EXPECT_EQ(y[static_cast<size_t>(i)], i < n ? 2.0f : -1.0f);
    }
  }
}

TEST_P(SimdTest, RoundsToTheNearestInteger) {
  const float x[16] = {0.5f, 1.5f, -0.5f, -1.5f, 2.4f, -2.6f, 1e10f, -1e10f,
                       NAN, 127.5f, 0.0f, 8388607.5f, -2147483648.0f, 3.0f, -3.49f, 126.5f};
  const int32_t kMin = std::numeric_limits<int32_t>::min();
  const int32_t expected[16] = {0, 2, 0, -2, 2, -3, kMin, kMin,
                                kMin, 128, 0, 8388608, kMin, 3, -3, 126};
  int32_t y[16];
  GetParam().probe().round_to_int(x, y, 16);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(y[i], expected[i]) << "lane " << i;
  }
}

TEST_P(SimdTest, AddsTheNearestInt64) {
  const float x[16] = {0.0f,         0.25f,        0.5f,           1.5f,
                       2.5f,         -0.5f,        -1.5f,          3.75f,
                       0x1p40f,      0x1p39f,      0x1.fffffep39f, 8388607.5f,
                       0x1.fffffep21f, 1e-38f,     4194303.5f,     4194304.5f};
  int64_t y[16];
  for (int i = 0; i < 16; ++i) {
    y[i] = (int64_t{1} << 52) * (i - 8) + i;
  }
  GetParam().probe().add_rounded(x, y, 16);
  for (int i = 0; i < 16; ++i) {
    // The tests' rounding mode is to nearest, ties to even.
    EXPECT_EQ(y[i], (int64_t{1} << 52) * (i - 8) + i + std::llrint(x[i])) << "lane " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, SimdTest,
    ::testing::Values(ProbeCase{"scalar", true, SimdProbeScalar},
                      ProbeCase{"avx2", CpuSupportsIsa("avx2"), SimdProbeAvx2},
                      ProbeCase{"avx512", CpuSupportsIsa("avx512"), SimdProbeAvx512}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace headroom::kernels
