// The page is well-formed: every tag is closed in order, every attribute quoted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "profiler/evaluation/html_text.h"
#include "profiler/evaluation/report.h"
#include "profiler/evaluation/svg_plot.h"
#include "tests/unit/profiler/markup.h"

namespace headroom::profiler {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

EvalReport Report() {
  EvalReport report;
  report.settings.model = "<m> & \"q\" \xff";
  report.rows = {ReferenceRow(kernels::KvDType::kF32), {}, {}};
  report.rows[1].policy = "streaming";
  report.rows[1].retention_ppm = 100'000;
  report.rows[2].policy = "x<y";
  report.rows[2].refusal = "wanted > 1 & < 2";
  FidelityReport fidelity;
  fidelity.documents.resize(1);
  fidelity.scores = {{DocumentScore{}}, {DocumentScore{}}, {}};
  FidelityGroup group;
  group.documents = {0};
  FidelitySummary full;
  full.physical_share = 1.0;
  FidelitySummary part;
  part.physical_share = 0.125;
  part.delta_nll = {0.5, 0.25, 0.75};
  group.rows = {full, part, std::nullopt};
  fidelity.groups = {group};
  report.fidelity = fidelity;
  NeedleReport needles;
  needles.task = "a<b.jsonl";
  needles.lengths = {256, 512};
  needles.totals.assign(kDepthBins, {2, 0});
  NeedleSummary summary;
  summary.physical_share = 0.125;
  summary.right = {0.5, 0.25, 0.75};
  summary.heat.assign(kDepthBins, {1, 0});
  needles.rows = {summary, summary, std::nullopt};
  report.needles = {needles};
  return report;
}

TEST(HtmlReportTest, IsWellFormedWhateverNamesHold) {
  EXPECT_EQ(MarkupFault(HtmlText(Report())), "");
}

TEST(HtmlReportTest, FetchesNothingAndRunsNothing) {
  const std::string html = HtmlText(Report());
  for (const char* word : {"<script", "http://", "https://", "url(", "src=", "@import", "href"}) {
    std::string without = html;
    // Namespaces are names, not addresses.
    for (const char* name : {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xhtml"}) {
      for (size_t at = without.find(name); at != std::string::npos; at = without.find(name)) {
        without.erase(at, std::string_view(name).size());
      }
    }
    EXPECT_THAT(without, Not(HasSubstr(word)));
  }
}

TEST(HtmlReportTest, ShowsPlotsMapsTablesAndRefusals) {
  const std::string html = HtmlText(Report());
  EXPECT_THAT(html, HasSubstr("prefers-color-scheme: dark"));
  EXPECT_THAT(html, HasSubstr("streaming rho 0.1, f32"));
  EXPECT_THAT(html, HasSubstr(">1/2</text>"));
  EXPECT_THAT(html, HasSubstr("wanted &gt; 1 &amp; &lt; 2"));
  EXPECT_THAT(html, HasSubstr("+0.5000 [+0.2500, +0.7500]"));
}

TEST(HtmlReportTest, TheCheckerFindsFaults) {
  for (const char* text : {"<a>", "<a></b>", "<a b=c></a>", "x & y", "a > b", "<a"}) {
    EXPECT_NE(MarkupFault(text), "") << text;
  }
  EXPECT_EQ(MarkupFault("<!DOCTYPE html><a b=\"c\"><d/>&#183;</a>"), "");
}

TEST(EscapeHtmlTest, LeavesTextAndDefusesMarkup) {
  EXPECT_EQ(EscapeHtml("a<b>&\"'"), "a&lt;b&gt;&amp;&quot;&#39;");
  EXPECT_EQ(EscapeHtml("h\xc3\xa9"), "h\xc3\xa9");
  EXPECT_EQ(EscapeHtml("a\xff\x01"
                       "b\xc3"),
            "a??b?");
}

TEST(SvgPlotTest, PutsMoreBytesToTheRightAndMoreLossHigher) {
  Plot plot;
  plot.series.resize(1);
  plot.series[0].points = {{.x = 0.1, .y = {2.0, 1.0, 3.0}, .label = "a", .tooltip = ""},
                           {.x = 1.0, .y = {0.0, 0.0, 0.0}, .label = "b", .tooltip = ""}};
  const std::string svg = SvgPlot(plot);
  const auto place = [&](const std::string& label) {
    const size_t end = svg.find("\">" + label + "</text></g>");
    EXPECT_NE(end, std::string::npos);
    const size_t begin = svg.rfind("x=\"", end);
    return std::pair(std::stod(svg.substr(begin + 3)),
                     std::stod(svg.substr(svg.find("y=\"", begin) + 3)));
  };
  EXPECT_LT(place("a").first, place("b").first);
  EXPECT_LT(place("a").second, place("b").second);
}

}  // namespace
}  // namespace headroom::profiler
