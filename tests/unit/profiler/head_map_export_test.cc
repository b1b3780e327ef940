#include "profiler/head_map_export.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/head_maps.h"

namespace headroom::profiler {
namespace {

using engine::HeadMap;
using ::headroom::testing::MakeHeadMap;

// Heads 0..4 of the fixture: special, punct, local (window 256), heavy, dense.
HeadMap ProbedMap() {
  HeadMap map = MakeHeadMap(2, 5, 1);
  map.hash = "sha256:1";
  for (size_t i = 0; i < map.heads.size(); ++i) {
    map.heads[i].copy_ppm = 200'000;
    map.heads[i].induction_ppm = i < 5 ? 0 : 1'000'000;
  }
  return map;
}

TEST(HeadMapExportTest, DuoScoresAreOneLineALayerAndFollowTheTypes) {
  std::istringstream lines(DuoScores(ProbedMap()));
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(line, "0.098\t0.098\t0.098\t0.598\t1");
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(line, "0.49\t0.49\t0.49\t0.99\t1");
  EXPECT_FALSE(std::getline(lines, line));
}

TEST(HeadMapExportTest, DuoConfigHasTheSizesOfStreamingHeads) {
  const auto config = nlohmann::json::parse(DuoConfig(ProbedMap()));
  EXPECT_EQ(config["sink_size"], 4);
  EXPECT_EQ(config["recent_size"], 256);
  EXPECT_EQ(config["head_map"], "sha256:1");
  HeadMap dense = ProbedMap();
  for (auto& head : dense.heads) {
    head.type = engine::HeadType::kDense;
  }
  EXPECT_EQ(StreamingSizesOf(dense).recent_size, 64) << "windows of dense heads do not count";
}

TEST(HeadMapExportTest, KvpressPatternHoldsTheSameScores) {
  const auto pattern = nlohmann::json::parse(KvpressPattern(ProbedMap()));
  EXPECT_EQ(pattern["head_scores"], nlohmann::json::parse("[[0.098, 0.098, 0.098, 0.598, 1.0],"
                                                          " [0.49, 0.49, 0.49, 0.99, 1.0]]"));
  EXPECT_EQ(pattern["recent_size"], 256);
}

}  // namespace
}  // namespace headroom::profiler
