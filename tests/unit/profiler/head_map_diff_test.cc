#include "profiler/head_map_diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/head_maps.h"

namespace headroom::profiler {
namespace {

using engine::HeadEntry;
using engine::HeadMap;
using engine::HeadType;
using ::headroom::testing::MakeHeadMap;
using ::testing::HasSubstr;
using ::testing::Not;

// 40 heads without a borderline one: a twentieth of them are two.
HeadMap SureMap() {
  HeadMap map = MakeHeadMap(10, 4, 1);
  for (HeadEntry& head : map.heads) {
    head.borderline = false;
  }
  return map;
}

TEST(HeadMapDiffTest, FindsTheHeadsWhoseTypeChanged) {
  const HeadMap before = SureMap();
  HeadMap after = before;
  after.heads[3].type = HeadType::kDense;
  after.heads[9].type = HeadType::kSpecial;
  after.heads[9].borderline = true;
  after.heads[5].margin_ppm += 1;  // no flip
  const auto flips = DiffHeadMaps(before, after);
  ASSERT_TRUE(flips.ok());
  ASSERT_EQ(flips->size(), 2u);
  EXPECT_EQ((*flips)[0].head, 3u);
  EXPECT_EQ((*flips)[0].before, HeadType::kHeavy);
  EXPECT_EQ((*flips)[0].after, HeadType::kDense);
  EXPECT_TRUE((*flips)[1].borderline);
  const std::string text = DiffText(before, after, *flips);
  EXPECT_THAT(text, HasSubstr("2 of 40 heads changed type (1 of them borderline)"));
  EXPECT_THAT(text, HasSubstr("0.3 "));
  EXPECT_THAT(text, HasSubstr("heavy -> dense"));
  EXPECT_THAT(text, HasSubstr("2.1 "));
}

TEST(HeadMapDiffTest, MapsOfOtherShapesAreRefused) {
  EXPECT_FALSE(DiffHeadMaps(MakeHeadMap(2, 3, 1), MakeHeadMap(3, 2, 1)).ok());
}

TEST(HeadMapDiffTest, NamesWhatElseDiffers) {
  const HeadMap before = MakeHeadMap(4, 2, 1);
  HeadMap after = before;
  after.profile.theta_ppm = 980'000;
  after.tsp.layer = 3;
  const std::string text = DiffText(before, after, {});
  EXPECT_THAT(text, HasSubstr("theta: 0.95 -> 0.98"));
  EXPECT_THAT(text, HasSubstr("TSP layer: 2 -> 3"));
  EXPECT_THAT(text, Not(HasSubstr("ladder")));
}

TEST(JudgeMapTest, KeepsAMapWhoseHeadsNeedNoMore) {
  const HeadMap map = SureMap();
  HeadMap fresh = map;
  for (HeadEntry& head : fresh.heads) {
    head.type = HeadType::kSpecial;  // the map gives more than is needed
  }
  EXPECT_TRUE(JudgeMap(map, map).keep);
  EXPECT_TRUE(JudgeMap(map, fresh).keep);
  EXPECT_THAT(JudgeMap(map, map).text, HasSubstr("keep the map"));
}

TEST(JudgeMapTest, OneHeadThatFetchesAndIsNotDenseIsTooMany) {
  const HeadMap map = SureMap();
  HeadMap fresh = map;
  fresh.heads[0].type = HeadType::kDense;
  fresh.heads[0].borderline = true;
  fresh.heads[0].copy_ppm = 99'999;
  EXPECT_TRUE(JudgeMap(map, fresh).keep) << "below the probe's threshold, and borderline";
  fresh.heads[0].copy_ppm = 100'000;
  const MapVerdict verdict = JudgeMap(map, fresh);
  EXPECT_FALSE(verdict.keep);
  EXPECT_EQ(verdict.missed_probes, 1);
  EXPECT_THAT(verdict.text, HasSubstr("re-profile"));
}

TEST(JudgeMapTest, ATwentiethOfTheHeadsMayNeedMore) {
  const HeadMap map = SureMap();
  HeadMap fresh = map;
  fresh.heads[0].type = HeadType::kLocal;
  fresh.heads[5].type = HeadType::kHeavy;
  EXPECT_TRUE(JudgeMap(map, fresh).keep);
  fresh.heads[10].type = HeadType::kPunct;
  EXPECT_FALSE(JudgeMap(map, fresh).keep);
  EXPECT_EQ(JudgeMap(map, fresh).needier, 3);
  fresh.heads[10].borderline = true;
  EXPECT_TRUE(JudgeMap(map, fresh).keep);
}

}  // namespace
}  // namespace headroom::profiler
