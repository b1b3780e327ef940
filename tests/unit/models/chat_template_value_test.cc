// Values, and JSON to and from them.
#include <gmock/gmock.h>

#include "tests/unit/models/chat_template_test_util.h"

namespace headroom::models::testing {
namespace {

using ::testing::HasSubstr;

std::string Dumped(const Value& value, const jinja::JsonStyle& style = {}) {
  const TemplateLimits limits;
  const TickingClock clock;
  jinja::Budget budget(limits, clock);
  const auto json = jinja::DumpJson(budget, value, style);
  return json.ok() ? *json : StatusMessage(json.status());
}

TEST(ValueJsonTest, KeepsTheOrderOfKeysAndTheKindOfNumbers) {
  const std::string json = R"({"z": 1, "a": [1.0, true, null, "é\n"], "m": {"k": -2.5e-7}})";
  EXPECT_EQ(Dumped(Json(json)), R"({"z": 1, "a": [1.0, true, null, "é\n"], "m": {"k": -2.5e-07}})");
}

TEST(ValueJsonTest, TheLastOfEqualKeysStands) {
  EXPECT_EQ(Dumped(Json(R"({"a": 1, "b": 2, "a": 3})")), R"({"a": 3, "b": 2})");
}

TEST(ValueJsonTest, FindsKeysInSmallAndLargeDicts) {
  std::string json = "{";
  for (int i = 0; i < 1000; ++i) {
    json += fmt::format("{}\"k{}\": {}", i > 0 ? "," : "", i, i);
  }
  const Value large = Json(json + "}");
  EXPECT_EQ(Dumped(*Find(large, "k999")), "999");
  EXPECT_EQ(Find(large, "k1000"), nullptr);
  EXPECT_EQ(Dumped(*Find(Json(R"({"a": 7})"), "a")), "7");
}

TEST(ValueJsonTest, MarksStringsAsMessageOnlyWhenAsked) {
  EXPECT_EQ(ValueFromJson("\"ab\"", true)->text()->message_ranges.size(), 1u);
  EXPECT_EQ(ValueFromJson("\"ab\"", false)->text()->message_ranges.size(), 0u);
  EXPECT_FALSE(ValueFromJson("{\"a\": 1}", true)->dict()->template_keys);
}

TEST(ValueJsonTest, RefusesDeepNestingAndBrokenText) {
  const std::string deep = std::string(64, '[') + std::string(64, ']');
  EXPECT_TRUE(ValueFromJson(deep, true).ok());
  EXPECT_THAT(StatusMessage(ValueFromJson("[" + deep + "]", true).status()),
              HasSubstr("nested more than 64 deep"));
  EXPECT_FALSE(ValueFromJson(std::string(1'000'000, '['), true).ok());
  for (const char* broken :
       {"", "{", "[1,]", "{\"a\":}", "nul", "1 2", "\"\xff\"", "{1: 2}", "\"\\ud800\"", "1e999"}) {
    EXPECT_EQ(ValueFromJson(broken, true).status().code(), StatusCode::kInvalidArgument) << broken;
  }
}

TEST(ValueJsonTest, IntegersBeyond64BitsBecomeFloatingPoint) {
  EXPECT_EQ(Dumped(Json("9223372036854775807")), "9223372036854775807");
  EXPECT_EQ(Dumped(Json("9223372036854775808")), "9.223372036854776e+18");
}

TEST(ValueJsonTest, IndentsAsPythonDoes) {
  jinja::JsonStyle style;
  style.indent = 2;
  EXPECT_EQ(Dumped(Json(R"({"a": [1, {}], "b": []})"), style),
            "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}");
}

TEST(ValueTest, KnowsItsDepth) {
  EXPECT_EQ(Json("1").depth(), 0);
  EXPECT_EQ(Json("[]").depth(), 1);
  EXPECT_EQ(Json("[{\"a\": [1]}, 2]").depth(), 3);
}

TEST(ValueTest, ADictKeepsTheFirstPlaceAndTheLastValueOfAKey) {
  const Value dict =
      Value::Dict({{"a", Value::Int(1)}, {"b", Value::Int(2)}, {"a", Value::Int(3)}});
  EXPECT_EQ(Dumped(dict), R"({"a": 3, "b": 2})");
}

}  // namespace
}  // namespace headroom::models::testing
