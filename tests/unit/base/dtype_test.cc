#include "base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

namespace headroom {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(F16Test, EveryValueSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits <= 0xffffu; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = F16ToFloat(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(F16ToFloat(FloatToF16(value)))) << bits;
    } else {
      ASSERT_EQ(FloatToF16(value), half) << bits;
    }
  }
}

TEST(F16Test, MatchesTheDefinitionOfTheFormat) {
  for (uint32_t bits = 0; bits < 0x7c00u; ++bits) {
    const int exponent = static_cast<int>(bits >> 10);
    const double mantissa = bits & 0x3ffu;
    const double expected =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024.0 + mantissa, exponent - 25);
    ASSERT_EQ(F16ToFloat(static_cast<uint16_t>(bits)), static_cast<float>(expected)) << bits;
    ASSERT_EQ(F16ToFloat(static_cast<uint16_t>(bits | 0x8000u)), static_cast<float>(-expected));
  }
  EXPECT_EQ(F16ToFloat(0x7c00), kInfinity);
  EXPECT_EQ(F16ToFloat(0xfc00), -kInfinity);
}

// Between each pair of neighbours: just below, at and just above the middle.
TEST(F16Test, RoundsToNearestAndTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7bffu; ++bits) {
    const float low = F16ToFloat(static_cast<uint16_t>(bits));
    const float high = F16ToFloat(static_cast<uint16_t>(bits + 1));
    const float middle = low + (high - low) / 2;  // exact: f32 has 13 bits more
    const uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(FloatToF16(middle), even) << bits;
    ASSERT_EQ(FloatToF16(std::nextafter(middle, -kInfinity)), bits);
    ASSERT_EQ(FloatToF16(std::nextafter(middle, kInfinity)), bits + 1);
    ASSERT_EQ(FloatToF16(-middle), even | 0x8000u) << bits;
  }
}

TEST(F16Test, OverflowsToInfinityFrom65520) {
  EXPECT_EQ(FloatToF16(65519.996f), 0x7bffu);
  EXPECT_EQ(FloatToF16(65520.0f), 0x7c00u);
  EXPECT_EQ(FloatToF16(-1e30f), 0xfc00u);
  EXPECT_EQ(FloatToF16(kInfinity), 0x7c00u);
  EXPECT_EQ(FloatToF16(1e-30f), 0u);
  EXPECT_EQ(FloatToF16(-1e-30f), 0x8000u);
}

TEST(Bf16Test, EveryValueSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits <= 0xffffu; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = Bf16ToFloat(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(value)))) << bits;
    } else {
      ASSERT_EQ(FloatToBf16(value), half) << bits;
    }
  }
}

TEST(Bf16Test, RoundsToNearestAndTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7f7fu; ++bits) {
    const uint32_t middle_bits = bits << 16 | 0x8000u;
    const uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(FloatToBf16(std::bit_cast<float>(middle_bits)), even) << bits;
    ASSERT_EQ(FloatToBf16(std::bit_cast<float>(middle_bits - 1)), bits);
    ASSERT_EQ(FloatToBf16(std::bit_cast<float>(middle_bits + 1)), bits + 1);
  }
  EXPECT_EQ(FloatToBf16(std::numeric_limits<float>::max()), 0x7f80u);
}

struct BlockFormat {
  DType dtype;
  const char* name;
  int64_t bytes_of_64_elements;
};

TEST(DTypeTest, RowBytesFollowTheGgufBlockFormats) {
  const BlockFormat formats[] = {
      {DType::kF32, "f32", 256},  {DType::kF16, "f16", 128},  {DType::kBF16, "bf16", 128},
      {DType::kQ8_0, "q8_0", 68}, {DType::kQ4_0, "q4_0", 36}, {DType::kQ4_1, "q4_1", 40},
      {DType::kQ5_0, "q5_0", 44}, {DType::kQ5_1, "q5_1", 48},
  };
  for (const BlockFormat& format : formats) {
    EXPECT_EQ(GetDTypeInfo(format.dtype).name, std::string(format.name));
    EXPECT_EQ(RowBytes(format.dtype, 64), format.bytes_of_64_elements) << format.name;
    EXPECT_EQ(IsQuantized(format.dtype), std::string(format.name)[0] == 'q');
  }
}

}  // namespace
}  // namespace headroom
