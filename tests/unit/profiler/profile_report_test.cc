#include "profiler/profile_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "profiler/profile_summary.h"
#include "tests/support/head_maps.h"
#include "tests/unit/profiler/markup.h"

namespace headroom::profiler {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

size_t Count(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
    ++count;
  }
  return count;
}

TEST(ProfileReportTest, ThePageIsWellFormedWhateverNamesHold) {
  engine::HeadMap map = testing::MakeHeadMap(6, 3, 2);
  map.model.name = "<m> & \"q\"";
  map.heads[0].per_domain = {{"<a&b>", engine::HeadType::kLocal}, {"z", engine::HeadType::kHeavy}};
  map.validation.reasons = {"1 < 2 & 3 > 2"};
  ProfileNotes notes;
  notes.warnings = {"a < b & c"};
  const std::string html = HtmlText({.map = map, .notes = notes});
  EXPECT_EQ(MarkupFault(html), "");
  EXPECT_THAT(html, Not(HasSubstr("<m>")));
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, Not(HasSubstr("http://www.w3.org/1999/xlink")));
}

// Types, probe scores and budgets: a cell each, in three grids.
TEST(ProfileReportTest, EveryHeadHasItsCells) {
  const engine::HeadMap map = testing::MakeHeadMap(7, 4, 1);
  const std::string html = HtmlText({.map = map, .notes = {}});
  EXPECT_EQ(Count(html, "class=\"cell"), 3u * 7 * 4);
  EXPECT_THAT(html, HasSubstr("6.3: "));  // the last head's tooltip
}

TEST(ProfileReportTest, SaysHowSingleRowsFareUnderTheirRungs) {
  engine::HeadMap map = testing::MakeHeadMap(1, 4, 1);
  ProfileNotes notes;
  EXPECT_THAT(TableText({.map = map, .notes = notes}), Not(HasSubstr("Of the last rows")));
  for (engine::HeadEntry& head : map.heads) {
    head.type = engine::HeadType::kLocal;
  }
  map.heads[1].type = engine::HeadType::kDense;
  notes.classification.late_p10_ppm = {910'000, 100'000, 830'000, 990'000};
  const std::string table = TableText({.map = map, .notes = notes});
  EXPECT_THAT(table, HasSubstr("keep 91.0 % or more"));
  EXPECT_THAT(table, HasSubstr("the least is 83.0 %, head 0.2"));
}

TEST(ProfileReportTest, MapsWithoutMeasurementsStillHaveAPage) {
  engine::HeadMap map = testing::MakeHeadMap(1, 1, 1);
  map.tsp.candidates.clear();
  map.tsp.overlap_ppm.clear();
  map.validation = {};
  map.profile.probes.clear();
  map.heads[0].recovery.clear();
  map.heads[0].curve_heavy.clear();
  map.heads[0].curve_local.clear();
  map.heads[0].per_domain.clear();
  map.heads[0].copy_ppm = map.heads[0].induction_ppm = 0;
  const ProfileReport report = {.map = map, .notes = {}};
  EXPECT_EQ(MarkupFault(HtmlText(report)), "");
  EXPECT_THAT(TableText(report), HasSubstr("no probes"));
}

TEST(ProfileReportTest, TheTableNamesTypesAndTheTspLayer) {
  const engine::HeadMap map = testing::MakeHeadMap(5, 3, 2);
  const std::string table = TableText({.map = map, .notes = {}});
  EXPECT_THAT(table, HasSubstr("<- TSP layer"));
  EXPECT_THAT(table, HasSubstr("fastkv"));
  for (int32_t type = 0; type < engine::kNumHeadTypes; ++type) {
    EXPECT_THAT(table, HasSubstr(engine::HeadTypeName(static_cast<engine::HeadType>(type))));
  }
}

TEST(ProfileReportTest, WarnsOfFewPromptsAndOfASoleType) {
  engine::HeadMap map = testing::MakeHeadMap(5, 4, 1);
  for (engine::HeadEntry& head : map.heads) {
    head.type = engine::HeadType::kDense;
  }
  ProfileNotes notes;
  notes.num_prompts = 99;
  std::string all;
  for (const std::string& warning : Warnings({.map = map, .notes = notes})) {
    all += warning + "\n";
  }
  EXPECT_THAT(all, HasSubstr("99 prompts"));
  EXPECT_THAT(all, HasSubstr("20 of 20 heads are dense"));
  notes.num_prompts = 100;
  for (const std::string& warning : Warnings({.map = map, .notes = notes})) {
    EXPECT_THAT(warning, Not(HasSubstr("100 prompts")));
  }
}

}  // namespace
}  // namespace headroom::profiler
