#include "profiler/evaluation/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace headroom::profiler {
namespace {

using ::testing::HasSubstr;

// Two rows that run and one that does not, on one document without key tokens.
EvalReport SmallReport() {
  EvalReport report;
  report.settings.model = "m";
  report.settings.backend = "cpu";
  report.rows = {ReferenceRow(kernels::KvDType::kBF16), {}, {}};
  report.rows[1].policy = "fastkv";
  report.rows[1].retention_ppm = 200'000;
  report.rows[1].tsp_ppm = 500'000;
  report.rows[1].kv_dtype = kernels::KvDType::kBF16;
  report.rows[2] = report.rows[1];
  report.rows[2].policy = "fastgen";
  report.rows[2].theta_ppm = 950'000;
  report.rows[2].refusal = "not here";
  FidelityReport fidelity;
  fidelity.continuation_tokens = 9;
  fidelity.documents.push_back({.id = "d",
                                .source = "s",
                                .num_tokens = 20,
                                .prefix_tokens = 11,
                                .num_scored = 8,
                                .num_key_tokens = 0,
                                .full_nll = 2.0});
  fidelity.scores = {{DocumentScore{}}, {DocumentScore{}}, {}};
  fidelity.scores[1][0].delta_nll = 0.25;
  FidelityGroup group;
  group.num_tokens = 20;
  group.documents = {0};
  group.full_ppl = 7.389;
  FidelitySummary summary;
  summary.delta_nll = {0.25, 0.125, 0.5};
  summary.physical_bytes = 2048;
  summary.physical_share = 0.25;
  group.rows = {FidelitySummary{}, summary, std::nullopt};
  fidelity.groups = {group};
  report.fidelity = fidelity;
  return report;
}

TEST(EvalRowTest, LabelsNameWhatDiffersFromFull) {
  EvalRow row = ReferenceRow(kernels::KvDType::kF32);
  EXPECT_EQ(RowLabel(row), "full, f32");
  row.policy = "fastkv";
  row.retention_ppm = 200'000;
  row.tsp_ppm = 1;
  EXPECT_EQ(RowLabel(row), "fastkv rho 0.2, tau 0.000001, f32");
  row.theta_ppm = 950'000;
  row.tsp_ppm = engine::kPpm;
  EXPECT_EQ(RowLabel(row), "fastkv theta 0.95, f32");
}

TEST(ReportJsonTest, HoldsEveryRowRefusalsIncluded) {
  const auto json = nlohmann::json::parse(JsonText(SmallReport()));
  EXPECT_EQ(json["schema"], "headroom-eval/1");
  ASSERT_EQ(json["rows"].size(), 3u);
  EXPECT_EQ(json["rows"][1]["retention"], 0.2);
  EXPECT_TRUE(json["rows"][1]["refused"].is_null());
  EXPECT_EQ(json["rows"][2]["refused"], "not here");
  EXPECT_EQ(json["rows"][2]["theta"], 0.95);
  const auto& group = json["fidelity"]["groups"][0];
  ASSERT_EQ(group["rows"].size(), 2u);
  EXPECT_EQ(group["rows"][1]["row"], 1);
  EXPECT_EQ(group["rows"][1]["delta_nll"]["low"], 0.125);
  EXPECT_TRUE(group["rows"][1]["key_top1"].is_null());
  ASSERT_EQ(json["fidelity"]["scores"].size(), 2u);
  EXPECT_EQ(json["fidelity"]["scores"][1]["documents"][0]["delta_nll"], 0.25);
}

TEST(ReportJsonTest, SurvivesNamesThatAreNotUtf8) {
  EvalReport report = SmallReport();
  report.settings.model =
      "a\xff"
      "b";
  EXPECT_FALSE(nlohmann::json::parse(JsonText(report)).is_discarded());
}

TEST(ReportTableTest, ShowsNumbersIntervalsAndRefusals) {
  const std::string text = TableText(SmallReport());
  EXPECT_THAT(text, HasSubstr("fastkv  0.2  0.5  bf16    2"));
  EXPECT_THAT(text, HasSubstr("+0.2500 [+0.1250, +0.5000]"));
  EXPECT_THAT(text, HasSubstr("not here"));
}

}  // namespace
}  // namespace headroom::profiler
