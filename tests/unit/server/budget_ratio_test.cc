#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "engine/kv/budget.h"
#include "server/budget_resolver.h"

namespace headroom::server {
namespace {

struct TextCase {
  std::string_view text;
  std::optional<int64_t> ppm;
};

class ParseRatioTest : public testing::TestWithParam<TextCase> {};

TEST_P(ParseRatioTest, TakesDecimalsOfAtMostSixPlacesAndNothingElse) {
  EXPECT_EQ(ParseRatioPpm(GetParam().text), GetParam().ppm) << '"' << GetParam().text << '"';
}

INSTANTIATE_TEST_SUITE_P(
    Table, ParseRatioTest,
    testing::Values(TextCase{"0.29", 290'000}, TextCase{"0.2", 200'000}, TextCase{"1", 1'000'000},
                    TextCase{"1.0", 1'000'000}, TextCase{".5", 500'000}, TextCase{"0.", 0},
                    TextCase{"0.123456", 123'456}, TextCase{"0.000001", 1},
                    TextCase{"0.999999", 999'999}, TextCase{"0", 0}, TextCase{"1.5", 1'500'000},
                    TextCase{"0.2000000", std::nullopt}, TextCase{"0.1234567", std::nullopt},
                    TextCase{"", std::nullopt}, TextCase{".", std::nullopt},
                    TextCase{"1e-1", std::nullopt}, TextCase{"1e9", std::nullopt},
                    TextCase{"nan", std::nullopt}, TextCase{"inf", std::nullopt},
                    TextCase{"+0.2", std::nullopt}, TextCase{"-0.2", std::nullopt},
                    TextCase{" 0.2", std::nullopt}, TextCase{"0.2 ", std::nullopt},
                    TextCase{"0 .2", std::nullopt}, TextCase{"0.2.1", std::nullopt},
                    TextCase{"0,2", std::nullopt}, TextCase{"0x1", std::nullopt},
                    TextCase{"20%", std::nullopt}, TextCase{"abc", std::nullopt},
                    TextCase{"18446744073709551616", std::nullopt},
                    TextCase{std::string_view("0.2\0", 4), std::nullopt}));

struct NumberCase {
  double value;
  std::optional<int64_t> ppm;
};

class RatioToPpmTest : public testing::TestWithParam<NumberCase> {};

TEST_P(RatioToPpmTest, TakesNumbersOfAtMostSixPlaces) {
  EXPECT_EQ(RatioToPpm(GetParam().value), GetParam().ppm) << GetParam().value;
}

INSTANTIATE_TEST_SUITE_P(
    Table, RatioToPpmTest,
    testing::Values(NumberCase{0.29, 290'000}, NumberCase{0.1 + 0.2, 300'000},
                    NumberCase{1.0, 1'000'000}, NumberCase{0.0, 0}, NumberCase{-0.5, -500'000},
                    NumberCase{1e-6, 1}, NumberCase{0.1234567, std::nullopt},
                    NumberCase{1e-7, std::nullopt}, NumberCase{0.20000001, std::nullopt},
                    NumberCase{1e30, std::nullopt}, NumberCase{std::nan(""), std::nullopt},
                    NumberCase{std::numeric_limits<double>::infinity(), std::nullopt}));

TEST(BudgetRatioTest, EveryPpmIsTheSameByTextAndByNumber) {
  for (int64_t ppm = 1; ppm <= engine::kPpm; ppm += ppm < 2000 ? 1 : 997) {
    const std::string text = RatioText(ppm);
    ASSERT_EQ(ParseRatioPpm(text), ppm) << text;
    ASSERT_EQ(RatioToPpm(std::stod(text)), ppm) << text;
  }
}

TEST(BudgetRatioTest, TwentyNineHundredthsOfAHundredKeepTwentyNineByEveryRoute) {
  EXPECT_EQ(engine::ScalePpm(ParseRatioPpm("0.29").value(), 100), 29);
  EXPECT_EQ(engine::ScalePpm(RatioToPpm(0.29).value(), 100), 29);
  // In floating point it would be 28.
  EXPECT_EQ(static_cast<int>(0.29 * 100), 28);
}

TEST(BudgetRatioTest, TextIsTheShortestDecimal) {
  EXPECT_EQ(RatioText(1'000'000), "1");
  EXPECT_EQ(RatioText(200'000), "0.2");
  EXPECT_EQ(RatioText(1), "0.000001");
  EXPECT_EQ(RatioText(123'456), "0.123456");
}

}  // namespace
}  // namespace headroom::server
