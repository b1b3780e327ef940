#include <algorithm>
#include <set>

#include "profiler/evaluation/needles.h"

namespace headroom::profiler {
namespace {

class Summarizer {
 public:
  Summarizer(const NeedleReport& report, const Bootstrap& bootstrap)
      : report_(report), bootstrap_(bootstrap) {}

  NeedleSummary Summarize(const std::vector<NeedleScore>& scores) const {
    const std::vector<NeedleScore>& reference = report_.scores.front();
    NeedleSummary summary;
    const std::vector<double> right =
        Values(scores, [](const NeedleScore& s) { return s.right ? 1.0 : 0.0; });
    std::vector<double> difference = right;
    int64_t lost = 0;
    int64_t won = 0;
    for (size_t i = 0; i < difference.size(); ++i) {
      difference[i] -= reference[i].right ? 1.0 : 0.0;
      lost += difference[i] < 0.0 ? 1 : 0;
      won += difference[i] > 0.0 ? 1 : 0;
    }
    summary.right = *bootstrap_.Mean(right);
    summary.difference = *bootstrap_.Mean(difference);
    summary.mcnemar_p = McNemarExact(lost, won);
    if (!report_.is_text) {
      summary.right_after_first = bootstrap_.Mean(
          Values(scores, [](const NeedleScore& s) { return s.right_after_first ? 1.0 : 0.0; }));
    }
    AddRanking(scores, &summary);
    AddBytes(scores, &summary);
    AddHeat(scores, &summary);
    return summary;
  }

 private:
  template <typename Field>
  static std::vector<double> Values(const std::vector<NeedleScore>& scores, Field&& field) {
    std::vector<double> values;
    for (const NeedleScore& score : scores) {
      values.push_back(field(score));
    }
    return values;
  }

  void AddRanking(const std::vector<NeedleScore>& scores, NeedleSummary* summary) const {
    const std::vector<double> ranked =
        Values(scores, [](const NeedleScore& s) { return s.rank > 0 ? 1.0 : 0.0; });
    summary->rank_accuracy = bootstrap_.Ratio(
        Values(scores, [](const NeedleScore& s) { return s.rank == 1 ? 1.0 : 0.0; }), ranked);
    summary->reciprocal_rank = bootstrap_.Ratio(
        Values(scores, [](const NeedleScore& s) { return s.rank > 0 ? 1.0 / s.rank : 0.0; }),
        ranked);
    summary->margin =
        bootstrap_.Ratio(Values(scores, [](const NeedleScore& s) { return s.margin; }), ranked);
  }

  static double MeanOf(const std::vector<NeedleScore>& scores, int64_t KvCost::*field) {
    double sum = 0.0;
    for (const NeedleScore& score : scores) {
      sum += static_cast<double>(score.cost.*field);
    }
    return sum / static_cast<double>(scores.size());
  }

  void AddBytes(const std::vector<NeedleScore>& scores, NeedleSummary* summary) const {
    summary->physical_bytes = MeanOf(scores, &KvCost::physical_bytes);
    summary->nominal_bytes = MeanOf(scores, &KvCost::nominal_bytes);
    summary->physical_share =
        summary->physical_bytes / MeanOf(report_.scores.front(), &KvCost::physical_bytes);
  }

  void AddHeat(const std::vector<NeedleScore>& scores, NeedleSummary* summary) const;

  const NeedleReport& report_;
  const Bootstrap& bootstrap_;
};

size_t DepthBin(double depth) {
  return std::min(static_cast<size_t>(depth * kDepthBins), size_t{kDepthBins - 1});
}

size_t LengthIndex(const NeedleReport& report, int32_t length) {
  return static_cast<size_t>(
      std::lower_bound(report.lengths.begin(), report.lengths.end(), length) -
      report.lengths.begin());
}

std::vector<std::vector<int32_t>> EmptyHeat(const NeedleReport& report) {
  return {kDepthBins, std::vector<int32_t>(report.lengths.size(), 0)};
}

void Summarizer::AddHeat(const std::vector<NeedleScore>& scores, NeedleSummary* summary) const {
  summary->heat = EmptyHeat(report_);
  for (size_t i = 0; i < scores.size(); ++i) {
    const NeedleInfo& prompt = report_.prompts[i];
    summary->heat[DepthBin(prompt.depth)][LengthIndex(report_, prompt.length)] +=
        scores[i].right ? 1 : 0;
  }
}

// Every row that ran is compared with the reference, whose own row is no comparison.
void AdjustForManyRows(std::vector<std::optional<NeedleSummary>>* rows) {
  std::vector<NeedleSummary*> compared;
  std::vector<double> p_values;
  for (size_t r = 1; r < rows->size(); ++r) {
    if ((*rows)[r].has_value()) {
      compared.push_back(&*(*rows)[r]);
      p_values.push_back(compared.back()->mcnemar_p);
    }
  }
  const std::vector<double> adjusted = HolmAdjusted(p_values);
  for (size_t i = 0; i < compared.size(); ++i) {
    compared[i]->holm_p = adjusted[i];
  }
}

}  // namespace

std::string ProtocolName(Protocol protocol) {
  return protocol == Protocol::kAware ? "aware" : "agnostic";
}

void SummarizeNeedles(int32_t num_resamples, uint64_t seed, NeedleReport* report) {
  std::set<int32_t> lengths;
  std::vector<std::string> strata;
  for (const NeedleInfo& prompt : report->prompts) {
    lengths.insert(prompt.length);
    strata.push_back(fmt::format("{}", prompt.length));
  }
  report->lengths.assign(lengths.begin(), lengths.end());
  report->totals = EmptyHeat(*report);
  for (const NeedleInfo& prompt : report->prompts) {
    ++report->totals[DepthBin(prompt.depth)][LengthIndex(*report, prompt.length)];
  }
  const Bootstrap bootstrap(strata, num_resamples, seed);
  const Summarizer summarizer(*report, bootstrap);
  for (const std::vector<NeedleScore>& scores : report->scores) {
    report->rows.push_back(scores.empty() ? std::nullopt
                                          : std::optional(summarizer.Summarize(scores)));
  }
  AdjustForManyRows(&report->rows);
}

}  // namespace headroom::profiler
