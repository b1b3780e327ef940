#include "engine/kv/head_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <string>

#include "base/sha256.h"
#include "tests/support/head_maps.h"

namespace headroom::engine {
namespace {

using ::headroom::testing::MakeHeadMap;
using ::testing::HasSubstr;

std::string ErrorOf(const std::string& text) {
  const StatusOr<HeadMap> map = ParseHeadMap(text);
  return map.ok() ? "" : StatusMessage(map.status());
}

// `text` with the first `from` replaced; fails the test when there is none.
std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t place = text.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  return place == std::string::npos ? text : text.replace(place, from.size(), to);
}

TEST(HeadMapTest, ReadsBackWhatItWroteByteForByte) {
  for (const auto& [layers, heads, group] : {std::array{1, 1, 1}, {3, 2, 3}, {5, 5, 7}}) {
    const std::string text = WriteHeadMap(MakeHeadMap(layers, heads, group));
    const StatusOr<HeadMap> map = ParseHeadMap(text);
    ASSERT_TRUE(map.ok()) << map.status();
    EXPECT_EQ(WriteHeadMap(*map), text);
    EXPECT_THAT(text, HasSubstr("\"map_hash\": \"" + map->hash + "\""));
  }
}

TEST(HeadMapTest, ReadsEveryMember) {
  const HeadMap wrote = MakeHeadMap(3, 2, 3);
  const StatusOr<HeadMap> read = ParseHeadMap(WriteHeadMap(wrote));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->model.name, wrote.model.name);
  EXPECT_EQ(read->model.num_query_heads, 6);
  EXPECT_EQ(read->tokenizer.special_ids, wrote.tokenizer.special_ids);
  EXPECT_EQ(read->profile.seed, wrote.profile.seed);
  EXPECT_EQ(read->profile.reference_tokens, 1508);
  EXPECT_EQ(read->profile.reference_special, 5);
  EXPECT_EQ(read->profile.reference_punctuation, 201);
  EXPECT_EQ(read->profile.corpus[1].tokens, 120'000);
  const HeadEntry& head = read->head(1, 1);  // the fourth head
  EXPECT_EQ(head.type, HeadType::kHeavy);
  EXPECT_EQ(head.confidence_ppm, 999'996);
  EXPECT_EQ(head.margin_ppm, 9345);
  EXPECT_TRUE(head.borderline);
  EXPECT_EQ(head.budget_tokens, 71);
  EXPECT_EQ(head.budget_ppm, 50'000);
  EXPECT_EQ(head.masses_ppm, wrote.head(1, 1).masses_ppm);
  EXPECT_EQ(head.recovery[0].value_error_ppm, -1);
  EXPECT_EQ(head.recovery[2].value_error_ppm, 0);
  EXPECT_EQ(head.curve_heavy[1].size, 50'000);
  EXPECT_EQ(head.curve_local[0].size, 64);
  EXPECT_EQ(head.per_domain, wrote.head(1, 1).per_domain);
  EXPECT_EQ(head.query_types.size(), 3u);
  EXPECT_EQ(read->tsp.candidates[1].delta_nll_ppm, -10);
  EXPECT_EQ(read->spend[1].points[0].dense_share_ppm, 250'000);
  EXPECT_EQ(read->validation.rows[1].seen_ppm, 666'667);
  EXPECT_EQ(read->bound, wrote.bound);
}

TEST(HeadMapTest, WhiteSpaceAndTheOrderOfMembersAreFree) {
  std::string text = WriteHeadMap(MakeHeadMap(2, 2, 1));
  const std::string schema = ",\n \"schema\": \"headmap/1\"";
  text = Replaced(Replaced(text, schema, ""), "{\n", "{\n\n\t\"schema\":\"headmap/1\",");
  EXPECT_EQ(ErrorOf(text), "");
}

TEST(HeadMapTest, AMapCutAtAnyByteIsRefused) {
  const std::string text = WriteHeadMap(MakeHeadMap(1, 2, 2));
  ASSERT_EQ(ErrorOf(text), "");
  for (size_t size = 0; size < text.size(); ++size) {
    ASSERT_NE(ErrorOf(text.substr(0, size)), "") << "cut to " << size << " bytes";
  }
}

TEST(HeadMapTest, AChangeOfAnyByteOfItsMembersIsRefused) {
  const std::string text = WriteHeadMap(MakeHeadMap(1, 1, 1));
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ' || text[i] == '\n') {
      continue;  // white space carries nothing; inside names the writer puts none at their ends
    }
    std::string changed = text;
    changed[i] = text[i] == '7' ? '8' : '7';
    ASSERT_NE(ErrorOf(changed), "") << "byte " << i << " of " << text.substr(i, 20);
  }
}

struct Fault {
  const char* from;
  const char* to;
  const char* message;  // a part of it
};

TEST(HeadMapTest, NamesTheFaultAndItsPlace) {
  const std::string text = WriteHeadMap(MakeHeadMap(2, 3, 1));
  const Fault faults[] = {
      {"headmap/1", "headmap/2", "schema: got \"headmap/2\", wanted \"headmap/1\""},
      {"\"bound\"", "\"bund\"", "bound: missing"},
      {"\"bound\"", "\"extra\": 1, \"bound\"", "the map: unknown member \"extra\""},
      {"\"copy\"", "\"copi\": 1, \"copy\"", "layers[0].kv[0]: unknown member \"copi\""},
      {"\"copy\"", "\"copy\": 0.5, \"copy\"", "key \"copy\" appears twice"},
      {"\"confidence\": 0.999999", "\"confidence\": NaN", "malformed JSON"},
      {"\"confidence\": 0.999999", "\"confidence\": 1e999", "malformed JSON"},
      {"\"confidence\": 0.999999", "\"confidence\": -1e300",
       "layers[0].kv[0].confidence: got -1e+300, wanted a decimal"},
      {"\"confidence\": 0.999999", "\"confidence\": 0.9999999",
       "layers[0].kv[0].confidence: got 0.9999999, wanted a decimal of at most six places"},
      {"\"confidence\": 0.999999", "\"confidence\": 1.000001",
       "layers[0].kv[0].confidence: got 1.000001, wanted 0 to 1"},
      {"\"confidence\": 0.999999", "\"confidence\": \"1\"",
       "layers[0].kv[0].confidence: got \"1\", wanted a decimal"},
      {"\"confidence\": 0.999999", "\"confidence\": null", "got null, wanted a decimal"},
      {"\"type\": \"special\"", "\"type\": \"rare\"", "layers[0].kv[0].type: got \"rare\""},
      {"\"borderline\": false", "\"borderline\": 0", "borderline: got 0, wanted true or false"},
      {"\"kv_heads\": 3", "\"kv_heads\": 4", "layers[0].kv: got 3 heads, wanted 4"},
      {"\"kv_heads\": 3", "\"kv_heads\": 3000000000", "model.kv_heads: got 3000000000"},
      {"\"layers\": 2", "\"layers\": 3", "layers: got 2, wanted 3"},
      {"\"query_heads\": 3", "\"query_heads\": 4", "model.query_heads: got 4, wanted a multiple"},
      {"\"special_ids\": [0, 1, 2]", "\"special_ids\": [0, 2, 1]", "special_ids[2]"},
      {"\"special_ids\": [0, 1, 2]", "\"special_ids\": [0, 1, -2]", "special_ids[2]: got -2"},
      {"\"sha256:", "\"sha512:", "bound[0]: got 71 bytes, wanted sha256: and 64"},
      {"\"status\": \"pass\"", "\"status\": \"passed\"", "validation.status: got \"passed\""},
      {"\"prefer\": \"answers\"", "\"prefer\": \"speed\"", "spend[0].prefer: got \"speed\""},
      {"[[0.1, 0.25], [0.2, 0.5]]", "[[0.1, 0.25], [0.2, 0.1]]", "product with the retention"},
      {"[[0.1, 0.25], [0.2, 0.5]]", "[[0.2, 0.25], [0.1, 0.5]]", "spend[1].points[1]"},
      {"[[0.1, 0.25], [0.2, 0.5]]", "[[0.1, 0.25], [0.2]]", "spend[1].points[1]: got array"},
      {"\"dense\": 1", "\"dense\": 2", "summary: got other types"},
      {"\"name\": \"test", "\"name\": \"toast", "map_hash: got sha256:"},
      {"\"confidence\": 0.999999", "\"confidence\": 0.999998", "the file was changed"},
      {"\"window\": 0", "\"window\": 0.5", "window: got 0.5, wanted a whole number of 32 bits"},
      {"\"seed\": 18446744073709551615", "\"seed\": -1", "seed: got -1, wanted a whole number"},
      {"\"seed\": 18446744073709551615", "\"seed\": 18446744073709551616", "wanted a whole number"},
      {"\"layer\": 1", "\"layer\": 2", "tsp.candidates[1].layer: got 2, wanted 0 to 1"},
      {"\"weight\": 1", "\"weight\": 0", "weight: got 0, wanted 0.000001 to 1000"},
  };
  for (const Fault& fault : faults) {
    EXPECT_THAT(ErrorOf(Replaced(text, fault.from, fault.to)), HasSubstr(fault.message))
        << fault.to;
  }
}

TEST(HeadMapTest, RefusesWhatIsNoMap) {
  for (const char* text : {"", " ", "\n", "null\n", "[]\n", "{}\n", "{\"schema\": \"headmap/1\"}\n",
                           "\xff\xfe\n", "{\"schema\": 1}\n", "{\"schema\": {}}\n"}) {
    EXPECT_NE(ErrorOf(text), "") << text;
  }
  EXPECT_THAT(ErrorOf(std::string(100'000, '[') + "\n"), HasSubstr("nested"));
  EXPECT_THAT(ErrorOf(std::string(kMaxHeadMapBytes + 1, ' ')), HasSubstr("at most 67108864"));
}

TEST(HeadMapTest, ValidationFindsWhatTheSyntaxAllows) {
  const std::pair<std::function<void(HeadMap*)>, const char*> cases[] = {
      {[](HeadMap* map) { map->heads.pop_back(); }, "got 3 members, wanted 4"},
      {[](HeadMap* map) { map->heads[1].recovery.pop_back(); }, "layers[0].kv[1].recovery"},
      {[](HeadMap* map) { map->heads[1].recovery[0].rung = "R9"; }, "the first head's \"R0\""},
      {[](HeadMap* map) { map->heads[2].masses_ppm[0] = 999'999; }, "masses (their sum)"},
      {[](HeadMap* map) { map->heads[2].curve_local[1].size = 64; }, "curve_local[1]"},
      {[](HeadMap* map) { map->heads[2].query_types.pop_back(); }, "query_types"},
      {[](HeadMap* map) { map->heads[0].type = static_cast<HeadType>(9); }, "type: got 9"},
      {[](HeadMap* map) { map->spend.pop_back(); }, "spend: got 2 members, wanted 3"},
      {[](HeadMap* map) { map->spend[0].points.clear(); }, "spend[0].points"},
      {[](HeadMap* map) { map->spend[0].local_share_ppm = 500'001; }, "wanted 0 to 0.5"},
      {[](HeadMap* map) { std::swap(map->bound[0], map->bound[1]); }, "bound[1]"},
      {[](HeadMap* map) { map->model.arch_hash.clear(); }, "model.arch_hash"},
      {[](HeadMap* map) { map->model.name = "a\nb"; }, "model.name"},
      {[](HeadMap* map) { map->model.name = "caf\xe9"; }, "ill-formed UTF-8"},
      {[](HeadMap* map) { map->profile.theta_ppm = 0; }, "profile.theta"},
      {[](HeadMap* map) { map->tsp.overlap_ppm.pop_back(); }, "tsp.overlap"},
      {[](HeadMap* map) { map->tsp.candidates[1].layer = 0; }, "tsp.candidates[1]"},
      {[](HeadMap* map) { map->validation.rows[0].entries_ppm = -1; },
       "validation.rows[0].entries"},
  };
  for (const auto& [change, message] : cases) {
    HeadMap map = MakeHeadMap(2, 2, 2);
    ASSERT_TRUE(ValidateHeadMap(map).ok());
    change(&map);
    EXPECT_THAT(StatusMessage(ValidateHeadMap(map)), HasSubstr(message));
  }
}

TEST(HeadMapTest, TheHashCoversEveryMemberButItself) {
  const HeadMap map = MakeHeadMap(2, 2, 2);
  HeadMap renamed = map;
  renamed.hash = "anything";
  EXPECT_EQ(WriteHeadMap(renamed), WriteHeadMap(map));
  renamed.validation.front.clear();
  EXPECT_NE(ParseHeadMap(WriteHeadMap(renamed))->hash, ParseHeadMap(WriteHeadMap(map))->hash);
}

TEST(HeadMapTest, FindsThePlanOfAPreference) {
  const HeadMap map = MakeHeadMap(2, 2, 2);
  ASSERT_NE(map.FindSpend("fluency"), nullptr);
  EXPECT_EQ(map.FindSpend("fluency")->local_share_ppm, 500'000);
  EXPECT_EQ(map.FindSpend("speed"), nullptr);
}

TEST(HeadMapTest, ReadsAFileAndNamesItsPathInErrors) {
  const std::string path = ::testing::TempDir() + "head_map_test.json";
  std::ofstream(path, std::ios::binary) << WriteHeadMap(MakeHeadMap(1, 1, 1));
  EXPECT_TRUE(LoadHeadMap(path).ok());
  std::ofstream(path, std::ios::binary) << "{";
  EXPECT_THAT(StatusMessage(LoadHeadMap(path).status()), HasSubstr(path + ": head map: malformed"));
  std::remove(path.c_str());
  EXPECT_EQ(LoadHeadMap(path).status().code(), StatusCode::kNotFound);
  EXPECT_THAT(StatusMessage(LoadHeadMap(::testing::TempDir()).status()),
              HasSubstr("wanted a regular file"));
}

TEST(HeadMapTest, WritesPartsPerMillionAsTheShortestDecimal) {
  EXPECT_EQ(PpmText(0), "0");
  EXPECT_EQ(PpmText(200'000), "0.2");
  EXPECT_EQ(PpmText(-1), "-0.000001");
  EXPECT_EQ(PpmText(12'000'000), "12");
  EXPECT_EQ(PpmText(INT64_MIN), "-9223372036854.775808");
}

}  // namespace
}  // namespace headroom::engine
