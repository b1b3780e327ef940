#include <algorithm>
#include <cmath>
#include <set>

#include "profiler/evaluation/fidelity.h"

namespace headroom::profiler {
namespace {

// Documents of more lengths than this get one summary alone.
constexpr size_t kMostLengths = 8;

// One summary: the scores of one row over the documents of one group.
class Summarizer {
 public:
  Summarizer(const FidelityReport& report, const FidelityGroup& group, const Bootstrap& bootstrap)
      : report_(report), group_(group), bootstrap_(bootstrap) {}

  FidelitySummary Summarize(const std::vector<DocumentScore>& scores) const {
    const auto mean = [&](auto&& field) { return *bootstrap_.Mean(Values(scores, field)); };
    FidelitySummary summary;
    summary.delta_nll = mean([](const DocumentScore& s) { return s.delta_nll; });
    summary.ppl_ratio = {std::exp(summary.delta_nll.value), std::exp(summary.delta_nll.low),
                         std::exp(summary.delta_nll.high)};
    summary.mean_kl = mean([](const DocumentScore& s) { return s.mean_kl; });
    summary.p99_kl = mean([](const DocumentScore& s) { return s.p99_kl; });
    summary.top1 = mean([](const DocumentScore& s) { return s.top1; });
    const std::vector<double> keys = KeyCounts();
    summary.key_delta_nll = bootstrap_.Ratio(
        Values(scores, [](const DocumentScore& s) { return s.key_delta_nll_sum; }), keys);
    summary.key_top1 = bootstrap_.Ratio(
        Values(scores, [](const DocumentScore& s) { return double{0} + s.key_agreements; }), keys);
    summary.physical_bytes = MeanOf(scores, &KvCost::physical_bytes);
    summary.physical_bytes_end = MeanOf(scores, &KvCost::physical_bytes_end);
    summary.nominal_bytes = MeanOf(scores, &KvCost::nominal_bytes);
    summary.physical_share =
        summary.physical_bytes / MeanOf(report_.scores.front(), &KvCost::physical_bytes);
    return summary;
  }

 private:
  template <typename Field>
  std::vector<double> Values(const std::vector<DocumentScore>& scores, Field&& field) const {
    std::vector<double> values;
    for (const int32_t document : group_.documents) {
      values.push_back(field(scores[static_cast<size_t>(document)]));
    }
    return values;
  }

  std::vector<double> KeyCounts() const {
    std::vector<double> counts;
    for (const int32_t document : group_.documents) {
      counts.push_back(report_.documents[static_cast<size_t>(document)].num_key_tokens);
    }
    return counts;
  }

  double MeanOf(const std::vector<DocumentScore>& scores, int64_t KvCost::*field) const {
    double sum = 0.0;
    for (const int32_t document : group_.documents) {
      sum += static_cast<double>(scores[static_cast<size_t>(document)].cost.*field);
    }
    return sum / static_cast<double>(group_.documents.size());
  }

  const FidelityReport& report_;
  const FidelityGroup& group_;
  const Bootstrap& bootstrap_;
};

FidelityGroup MakeGroup(const FidelityReport& report, int32_t num_tokens) {
  FidelityGroup group;
  group.num_tokens = num_tokens;
  double nll = 0.0;
  for (size_t i = 0; i < report.documents.size(); ++i) {
    const DocumentInfo& document = report.documents[i];
    if (num_tokens == 0 || document.num_tokens == num_tokens) {
      group.documents.push_back(static_cast<int32_t>(i));
      group.num_key_tokens += document.num_key_tokens;
      nll += document.full_nll;
    }
  }
  group.full_ppl = std::exp(nll / static_cast<double>(group.documents.size()));
  return group;
}

}  // namespace

void SummarizeFidelity(int32_t num_resamples, uint64_t seed, FidelityReport* report) {
  std::set<int32_t> lengths;
  for (const DocumentInfo& document : report->documents) {
    lengths.insert(document.num_tokens);
  }
  std::vector<int32_t> groups(lengths.begin(), lengths.end());
  if (groups.size() > kMostLengths) {
    groups.clear();
  }
  if (groups.size() != 1) {
    groups.push_back(0);
  }
  for (const int32_t num_tokens : groups) {
    FidelityGroup group = MakeGroup(*report, num_tokens);
    std::vector<std::string> strata;
    for (const int32_t index : group.documents) {
      const DocumentInfo& document = report->documents[static_cast<size_t>(index)];
      strata.push_back(fmt::format("{}/{}", document.source, document.num_tokens));
    }
    const Bootstrap bootstrap(strata, num_resamples, seed);
    const Summarizer summarizer(*report, group, bootstrap);
    for (const std::vector<DocumentScore>& scores : report->scores) {
      group.rows.push_back(scores.empty() ? std::nullopt
                                          : std::optional(summarizer.Summarize(scores)));
    }
    report->groups.push_back(std::move(group));
  }
}

}  // namespace headroom::profiler
