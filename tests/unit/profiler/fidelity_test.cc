// Fidelity against the double-precision forward pass with an explicit mask, and its identities.
#include "profiler/evaluation/fidelity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/support/kv_fixture.h"
#include "tests/support/oracle_forward.h"

namespace headroom::profiler {
namespace {

using engine::kPpm;
using headroom::testing::KvFixture;
using headroom::testing::MakeKvSpec;
using headroom::testing::OracleInput;
using headroom::testing::OracleLogits;

constexpr int32_t kTokens = 60;
constexpr int32_t kContinuation = 12;
constexpr int32_t kPrefix = kTokens - kContinuation;

class SilentObserver final : public EvalObserver {
 public:
  void Progress(int64_t done, int64_t total, const std::string&) override {
    EXPECT_GT(done, last_done);
    EXPECT_LE(done, total);
    last_done = done;
    last_total = total;
  }
  void Finished(const std::string&, int64_t, int64_t) override { ++num_finished; }
  bool Cancelled() const override { return last_done >= cancel_at; }

  int64_t last_done = 0;
  int64_t last_total = 0;
  int64_t cancel_at = INT64_MAX;
  int num_finished = 0;
};

class FidelityTest : public ::testing::Test {
 protected:
  FidelityTest() : fixture_(headroom::testing::KvFixtureOptions{}) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      Document document;
      document.id = std::to_string(seed);
      document.source = "random";
      document.ids =
          headroom::testing::RandomTokens(kTokens, fixture_.loaded().config.vocab_size, seed);
      documents_.push_back(std::move(document));
    }
  }

  static EvalRow Row(const std::string& policy, int64_t retention_ppm, int64_t tsp_ppm,
                     kernels::KvDType dtype = kernels::KvDType::kF32) {
    EvalRow row;
    row.policy = policy;
    row.retention_ppm = retention_ppm;
    row.tsp_ppm = tsp_ppm;
    row.kv_dtype = dtype;
    row.spec = MakeKvSpec(policy, retention_ppm, tsp_ppm);
    return row;
  }

  Status Measure(const std::vector<EvalRow>& rows, FidelityReport* report) {
    const EvalModel model = {.model = fixture_.model(),
                             .backend = fixture_.backend(),
                             .policies = fixture_.policies(),
                             .clock = clock_,
                             .shape = fixture_.shape(),
                             .attention_scale = fixture_.model().attention_scale(),
                             .max_rows = 16};
    HEADROOM_ASSIGN_OR_RETURN(const auto caches, CacheSet::Create(model, rows, kTokens));
    FidelityOptions options;
    options.continuation_tokens = kContinuation;
    HEADROOM_RETURN_IF_ERROR(
        MeasureFidelity(documents_, options, rows, *caches, observer_, report));
    SummarizeFidelity(500, 1, report);
    return OkStatus();
  }

  // Log-probabilities [scored][vocab] of the oracle when every layer keeps `kept` of the prefix.
  std::vector<std::vector<double>> OracleLogProbabilities(const Document& document,
                                                          const std::vector<int32_t>& kept) const {
    OracleInput input;
    input.tokens.assign(document.ids.begin(), document.ids.end() - 1);
    input.num_prompt = kPrefix;
    std::vector<int32_t> seen = kept;
    for (int32_t position = kPrefix; position < kTokens - 1; ++position) {
      seen.push_back(position);
      const std::vector<std::vector<int32_t>> heads(
          static_cast<size_t>(fixture_.shape().num_kv_heads), seen);
      input.seen.emplace_back(static_cast<size_t>(fixture_.shape().num_layers), heads);
    }
    std::vector<std::vector<double>> rows = OracleLogits(fixture_.loaded(), input);
    rows.erase(rows.begin());  // predicts the first token of the continuation
    for (std::vector<double>& row : rows) {
      double sum = 0.0;
      for (const double logit : row) {
        sum += std::exp(logit);
      }
      for (double& logit : row) {
        logit -= std::log(sum);
      }
    }
    return rows;
  }

  mutable KvFixture fixture_;
  headroom::testing::TickingClock clock_;
  SilentObserver observer_;
  std::vector<Document> documents_;
};

std::vector<int32_t> Range(int32_t begin, int32_t end) {
  std::vector<int32_t> range(static_cast<size_t>(end - begin));
  std::iota(range.begin(), range.end(), begin);
  return range;
}

// `streaming` keeps positions that need no scores, so that the oracle can be told its mask:
// floor(0.5 * 48) = 24 of them, 2 sinks (MakeKvSpec) and the last 22.
TEST_F(FidelityTest, AgreesWithTheMaskedForwardPassInDoublePrecision) {
  FidelityReport report;
  ASSERT_TRUE(
      Measure({ReferenceRow(kernels::KvDType::kF32), Row("streaming", kPpm / 2, kPpm)}, &report)
          .ok());
  std::vector<int32_t> kept = Range(0, 2);
  const std::vector<int32_t> recent = Range(kPrefix - 22, kPrefix);
  kept.insert(kept.end(), recent.begin(), recent.end());
  for (size_t d = 0; d < documents_.size(); ++d) {
    const auto full = OracleLogProbabilities(documents_[d], Range(0, kPrefix));
    const auto masked = OracleLogProbabilities(documents_[d], kept);
    ASSERT_EQ(full.size(), static_cast<size_t>(kContinuation - 1));
    double nll = 0.0;
    double delta = 0.0;
    double divergence = 0.0;
    for (size_t i = 0; i < full.size(); ++i) {
      const auto token = static_cast<size_t>(documents_[d].ids[kPrefix + 1 + i]);
      nll -= full[i][token] / (kContinuation - 1);
      delta += (full[i][token] - masked[i][token]) / (kContinuation - 1);
      for (size_t v = 0; v < full[i].size(); ++v) {
        divergence += std::exp(full[i][v]) * (full[i][v] - masked[i][v]) / (kContinuation - 1);
      }
    }
    // The reference backend keeps f32 between ops: about 1e-6 relative a layer.
    EXPECT_NEAR(report.documents[d].full_nll, nll, 1e-4);
    EXPECT_NEAR(report.scores[1][d].delta_nll, delta, 1e-4);
    EXPECT_NEAR(report.scores[1][d].mean_kl, divergence, 1e-4);
    EXPECT_GT(divergence, 1e-2);  // the mask matters
  }
}

TEST_F(FidelityTest, WholeBudgetsEqualTheReferenceExactly) {
  FidelityReport report;
  ASSERT_TRUE(Measure({ReferenceRow(kernels::KvDType::kF32), Row("full", kPpm, kPpm),
                       Row("streaming", kPpm, kPpm), Row("fastkv", kPpm, kPpm)},
                      &report)
                  .ok());
  for (size_t r = 0; r < report.scores.size(); ++r) {
    for (const DocumentScore& score : report.scores[r]) {
      EXPECT_EQ(score.delta_nll, 0.0);
      EXPECT_EQ(score.mean_kl, 0.0);
      EXPECT_EQ(score.p99_kl, 0.0);
      EXPECT_EQ(score.top1, 1.0);
      EXPECT_EQ(score.cost.physical_bytes, report.scores[0][0].cost.physical_bytes);
    }
    EXPECT_EQ(report.groups[0].rows[r]->delta_nll.high, 0.0);
    EXPECT_EQ(report.groups[0].rows[r]->ppl_ratio.value, 1.0);
    EXPECT_EQ(report.groups[0].rows[r]->physical_share, 1.0);
  }
}

// 3 layers, 2 KV heads, head_dim 8: a page is 16 slots of 2 * 8 * 4 bytes at least, an entry 64
// bytes. 48 tokens fill 3 pages a head, 24 need 2 and keep 24 entries.
TEST_F(FidelityTest, CountsPagesAndEntriesApart) {
  FidelityReport report;
  ASSERT_TRUE(
      Measure({ReferenceRow(kernels::KvDType::kF32), Row("streaming", kPpm / 2, kPpm)}, &report)
          .ok());
  const KvCost& full = report.scores[0][0].cost;
  const KvCost& half = report.scores[1][0].cost;
  EXPECT_EQ(full.entries, 3 * 2 * 48);
  EXPECT_EQ(half.entries, 3 * 2 * 24);
  EXPECT_EQ(full.nominal_bytes, full.entries * 64);
  EXPECT_EQ(half.physical_bytes * 3, full.physical_bytes * 2);
  EXPECT_EQ(full.physical_bytes_end, full.physical_bytes / 3 * 4);  // 48 + 11 tokens
  EXPECT_EQ(half.physical_bytes_end, full.physical_bytes);          // 24 + 11 tokens
}

TEST_F(FidelityTest, ARefusedRowHasNoScoresAndCostsNothing) {
  EvalRow refused = Row("streaming", kPpm, kPpm / 2);
  refused.refusal = "no";
  FidelityReport report;
  ASSERT_TRUE(Measure({ReferenceRow(kernels::KvDType::kF32), refused}, &report).ok());
  EXPECT_TRUE(report.scores[1].empty());
  EXPECT_FALSE(report.groups[0].rows[1].has_value());
  EXPECT_EQ(observer_.last_done, observer_.last_total);
  EXPECT_EQ(observer_.last_total, 3 * kTokens);
  EXPECT_EQ(observer_.num_finished, 3);
}

TEST_F(FidelityTest, OtherKvTypesAreComparedWithTheFirst) {
  FidelityReport report;
  ASSERT_TRUE(Measure({ReferenceRow(kernels::KvDType::kF32),
                       Row("full", kPpm, kPpm, kernels::KvDType::kBF16),
                       Row("full", kPpm, kPpm, kernels::KvDType::kInt8)},
                      &report)
                  .ok());
  EXPECT_GT(report.groups[0].rows[1]->mean_kl.value, 0.0);
  EXPECT_LT(report.groups[0].rows[1]->mean_kl.value, 1e-2);
  EXPECT_EQ(report.scores[1][0].cost.nominal_bytes * 2, report.scores[0][0].cost.nominal_bytes);
  EXPECT_GT(report.groups[0].rows[2]->mean_kl.value, 0.0);
  EXPECT_LT(report.groups[0].rows[2]->mean_kl.value, 1e-2);
  // head_dim 8: 16 bytes and two scales of four, against 64.
  EXPECT_EQ(report.scores[2][0].cost.nominal_bytes * 64,
            report.scores[0][0].cost.nominal_bytes * 24);
}

TEST_F(FidelityTest, EndsBetweenRowsWhenCancelled) {
  observer_.cancel_at = kTokens;
  FidelityReport report;
  const Status status =
      Measure({ReferenceRow(kernels::KvDType::kF32), Row("fastkv", kPpm / 2, kPpm)}, &report);
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_EQ(observer_.last_done, kTokens);
}

TEST_F(FidelityTest, DocumentsOfSeveralLengthsAreAlsoSummarizedTogether) {
  documents_[2].ids.resize(40);
  FidelityReport report;
  ASSERT_TRUE(
      Measure({ReferenceRow(kernels::KvDType::kF32), Row("fastkv", kPpm / 2, kPpm)}, &report).ok());
  ASSERT_EQ(report.groups.size(), 3u);
  EXPECT_EQ(report.groups[0].num_tokens, 40);
  EXPECT_EQ(report.groups[0].documents, std::vector<int32_t>{2});
  EXPECT_EQ(report.groups[2].num_tokens, 0);
  const double mean = (report.scores[1][0].delta_nll + report.scores[1][1].delta_nll +
                       report.scores[1][2].delta_nll) /
                      3;
  EXPECT_NEAR(report.groups[2].rows[1]->delta_nll.value, mean, 1e-12);
}

TEST_F(FidelityTest, DocumentsMustBeLongerThanTheContinuationAndFitTheContext) {
  FidelityOptions options;
  options.continuation_tokens = kTokens;
  EXPECT_NE(StatusMessage(CheckDocuments(documents_, options, 1000)).find("60 tokens, wanted more"),
            std::string::npos);
  options.continuation_tokens = kContinuation;
  EXPECT_TRUE(CheckDocuments(documents_, options, kTokens).ok());
  EXPECT_NE(StatusMessage(CheckDocuments(documents_, options, kTokens - 1)).find("context of 59"),
            std::string::npos);
}

}  // namespace
}  // namespace headroom::profiler
