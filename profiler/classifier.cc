#include "profiler/classifier.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace headroom::profiler {
namespace {

using engine::HeadEntry;
using engine::HeadType;

constexpr int64_t kPpm = 1'000'000;
constexpr int64_t kDomainWeight = 1'000'000'000;
constexpr size_t kFewestOfALength = 4;
constexpr double kWeightUnits = 1000.0;

int64_t WeightUnits(double weight) {
  return std::max<int64_t>(1, std::llround(std::clamp(weight, 0.0, 1e6) * kWeightUnits));
}

// a / b to the nearest whole number, b > 0, a >= 0.
int64_t Rounded(__int128 a, __int128 b) { return static_cast<int64_t>((a + b / 2) / b); }

}  // namespace

void HeadClassifier::Means::Add(const std::vector<int32_t>& values) {
  if (values.empty()) {
    return;
  }
  sums.resize(values.size(), 0);
  HEADROOM_CHECK(sums.size() == values.size());
  ++prompts;
  for (size_t i = 0; i < values.size(); ++i) {
    sums[i] += values[i];
  }
}

HeadClassifier::HeadClassifier(const HeadShape& shape, Ladder ladder, Ladder paper_ladder,
                               const ClassifierOptions& options)
    : shape_(shape),
      ladder_(std::move(ladder)),
      paper_ladder_(std::move(paper_ladder)),
      options_(options),
      masses_(shape, ladder_.rungs.size()),
      probes_(shape),
      class_sums_(shape.num_heads() * 5, 0) {
  HEADROOM_CHECK(ladder_.rungs.back().all);
}

void HeadClassifier::Add(const PromptRecord& record) {
  masses_.Add(record);
  value_errors_.Add(record.value_error_ppm);
  overlap_.Add(record.overlap_ppm);
  late_p10_.Add(record.late_p10_ppm);
  if (!record.paper_mass_ppm.empty()) {
    const size_t rungs = paper_ladder_.rungs.size();
    const auto group = static_cast<size_t>(shape_.group_size());
    HEADROOM_CHECK(record.paper_mass_ppm.size() == shape_.num_heads() * group * rungs);
    std::vector<int32_t> least(shape_.num_heads() * rungs, static_cast<int32_t>(kPpm));
    for (size_t i = 0; i < record.paper_mass_ppm.size(); ++i) {
      int32_t& mass = least[i / (group * rungs) * rungs + i % rungs];
      mass = std::min(mass, record.paper_mass_ppm[i]);
    }
    paper_masses_.Add(least);
  }
  AddClassMasses(record);
  AddQueryPasses(record);
}

void HeadClassifier::AddClassMasses(const PromptRecord& record) {
  const auto group = static_cast<size_t>(shape_.group_size());
  HEADROOM_CHECK(record.class_mass_ppm.size() == shape_.num_heads() * group);
  for (size_t i = 0; i < record.class_mass_ppm.size(); ++i) {
    for (size_t kind = 0; kind < 5; ++kind) {
      class_sums_[i / group * 5 + kind] += record.class_mass_ppm[i][kind];
    }
  }
}

void HeadClassifier::AddQueryPasses(const PromptRecord& record) {
  auto& [total, passes] = query_passes_[record.domain];
  passes.resize(record.mass_ppm.size(), 0);
  const int64_t weight = WeightUnits(record.weight);
  total += weight;
  for (size_t i = 0; i < passes.size(); ++i) {
    passes[i] += record.mass_ppm[i] >= options_.pass.theta_ppm ? weight : 0;
  }
}

std::vector<int32_t> HeadClassifier::Rungs(std::span<const int32_t> sample,
                                           std::span<const int64_t> entries,
                                           int64_t reference_tokens) const {
  const size_t num_rungs = ladder_.rungs.size();
  std::vector<uint8_t> passes = masses_.Passes(options_.pass, sample);
  if (options_.value_error_limit_ppm > 0 && value_errors_.prompts > 0) {
    for (size_t i = 0; i < passes.size(); ++i) {
      passes[i] &= value_errors_.at(i) <= options_.value_error_limit_ppm ? 1 : 0;
    }
  }
  std::vector<int32_t> rungs(shape_.num_heads());
  for (size_t head = 0; head < rungs.size(); ++head) {
    rungs[head] = CheapestRung(std::span(passes).subspan(head * num_rungs, num_rungs), entries,
                               reference_tokens);
  }
  return rungs;
}

std::vector<HeadType> HeadClassifier::Types() const {
  const std::vector<int32_t> sample = masses_.All();
  const ReferenceLength reference = masses_.Reference(sample);
  const std::vector<int64_t> entries = LadderEntries(ladder_, reference, options_.recent_tokens);
  const std::vector<int32_t> rungs = Rungs(sample, entries, reference.num_tokens);
  const std::vector<uint8_t> promoted = probes_.Promoted(options_.promotion);
  std::vector<HeadType> types;
  for (size_t head = 0; head < rungs.size(); ++head) {
    types.push_back(promoted[head] != 0
                        ? HeadType::kDense
                        : TypeOfRung(ladder_.rungs[static_cast<size_t>(rungs[head])]));
  }
  return types;
}

Classification HeadClassifier::Classify() {
  masses_.Sort();
  probes_.Sort();
  Classification result;
  const std::vector<int32_t> sample = masses_.All();
  result.reference = masses_.Reference(sample);
  const std::vector<int64_t> entries =
      LadderEntries(ladder_, result.reference, options_.recent_tokens);
  std::vector<int32_t> rungs = Rungs(sample, entries, result.reference.num_tokens);
  const auto last = static_cast<int32_t>(ladder_.rungs.size() - 1);
  const std::vector<uint8_t> fired = probes_.Promoted(options_.promotion);
  const std::vector<int64_t> copy = probes_.Copy();
  const std::vector<int64_t> induction = probes_.Induction();
  result.heads.resize(shape_.num_heads());
  result.promoted.assign(shape_.num_heads(), 0);
  for (size_t i = 0; i < rungs.size(); ++i) {
    if (fired[i] != 0) {
      result.promoted[i] = rungs[i] != last ? 1 : 0;
      rungs[i] = last;
    }
    if (late_p10_.prompts > 0) {
      result.late_p10_ppm.push_back(
          late_p10_.at(i * ladder_.rungs.size() + static_cast<size_t>(rungs[i])));
    }
    HeadEntry& head = result.heads[i];
    SetRung(ladder_.rungs[static_cast<size_t>(rungs[i])], result.reference, options_.recent_tokens,
            &head);
    head.copy_ppm = copy[i];
    head.induction_ppm = induction[i];
    // Heads that fetch facts win ties with heads that only spread their mass.
    head.weight_ppm = kPpm + (fired[i] != 0 ? head.probe_ppm() : 0);
  }
  result.query_probe_ppm = probes_.QueryHeads();
  SetRecovery(&result);
  SetConfidence(rungs, entries, &result);
  SetDomains(entries, &result);
  SetQueryTypes(entries, &result);
  FitBudgets(&result);
  SetPaperTypes(&result);
  for (size_t layer = 0; layer < overlap_.sums.size(); ++layer) {
    result.overlap_ppm.push_back(overlap_.at(layer));
  }
  return result;
}

void HeadClassifier::SetRecovery(Classification* result) const {
  const size_t num_rungs = ladder_.rungs.size();
  const std::vector<int64_t> p10 = masses_.P10();
  const std::vector<int64_t> mean = masses_.Mean();
  const auto prompts = static_cast<int64_t>(masses_.size());
  for (size_t i = 0; i < result->heads.size(); ++i) {
    HeadEntry& head = result->heads[i];
    for (size_t r = 0; r < num_rungs; ++r) {
      const Rung& rung = ladder_.rungs[r];
      const size_t at = i * num_rungs + r;
      head.recovery.push_back(
          {.rung = rung.name,
           .p10_ppm = p10[at],
           .mean_ppm = mean[at],
           .value_error_ppm = value_errors_.prompts == 0 ? -1 : value_errors_.at(at)});
      const bool is_windowed = rung.window > 0 || rung.window_ppm > 0;
      if (rung.all || (rung.punctuation && !is_windowed)) {
        head.curve_heavy.push_back({.size = rung.all ? kPpm : rung.heavy_ppm, .mass_ppm = p10[at]});
      } else if (!rung.punctuation && rung.window_ppm == 0) {
        const int64_t window = std::max<int64_t>(rung.window, options_.recent_tokens);
        if (!head.curve_local.empty() && head.curve_local.back().size >= window) {
          continue;  // the recent tokens cover this window
        }
        head.curve_local.push_back({.size = window, .mass_ppm = p10[at]});
      }
    }
    for (size_t kind = 0; kind < 5 && prompts > 0; ++kind) {
      head.masses_ppm[kind] = class_sums_[i * 5 + kind] / (prompts * shape_.group_size());
    }
  }
}

void HeadClassifier::SetConfidence(const std::vector<int32_t>& rungs,
                                   std::span<const int64_t> entries, Classification* result) const {
  std::vector<int64_t> same(result->heads.size(), 0);
  for (int32_t index = 0; index < options_.num_resamples; ++index) {
    const std::vector<int32_t> sample = masses_.Resample(options_.seed, index);
    const std::vector<int32_t> drawn = Rungs(sample, entries, result->reference.num_tokens);
    const std::vector<uint8_t> fired =
        probes_.PromotedInResample(options_.promotion, options_.seed, index);
    for (size_t i = 0; i < same.size(); ++i) {
      const HeadType type = fired[i] != 0
                                ? HeadType::kDense
                                : TypeOfRung(ladder_.rungs[static_cast<size_t>(drawn[i])]);
      same[i] += type == result->heads[i].type ? 1 : 0;
    }
  }
  for (size_t i = 0; i < same.size(); ++i) {
    HeadEntry& head = result->heads[i];
    head.confidence_ppm = options_.num_resamples == 0 ? 0 : same[i] * kPpm / options_.num_resamples;
    SetMargin(head.recovery[static_cast<size_t>(rungs[i])].p10_ppm, options_.pass.theta_ppm, &head);
  }
}

void HeadClassifier::SetDomains(std::span<const int64_t> entries, Classification* result) const {
  const std::vector<uint8_t> fired = probes_.Promoted(options_.promotion);
  for (size_t d = 0; d < masses_.domains().size(); ++d) {
    const std::vector<int32_t> sample = masses_.OfDomain(static_cast<int32_t>(d));
    const std::vector<int32_t> rungs = Rungs(sample, entries, result->reference.num_tokens);
    for (size_t i = 0; i < rungs.size(); ++i) {
      const HeadType type = fired[i] != 0
                                ? HeadType::kDense
                                : TypeOfRung(ladder_.rungs[static_cast<size_t>(rungs[i])]);
      result->heads[i].per_domain.emplace_back(masses_.domains()[d], type);
    }
  }
}

void HeadClassifier::SetQueryTypes(std::span<const int64_t> entries, Classification* result) const {
  const size_t num_rungs = ladder_.rungs.size();
  const auto group = static_cast<size_t>(shape_.group_size());
  const auto num_domains = static_cast<int64_t>(query_passes_.size());
  std::vector<uint8_t> passes(num_rungs);
  for (size_t query = 0; query < shape_.num_heads() * group; ++query) {
    for (size_t r = 0; r < num_rungs; ++r) {
      int64_t failed = 0;
      for (const auto& [name, domain] : query_passes_) {
        failed +=
            (domain.first - domain.second[query * num_rungs + r]) * kDomainWeight / domain.first;
      }
      passes[r] = failed * 10 < num_domains * kDomainWeight ? 1 : 0;
    }
    const int32_t rung = CheapestRung(passes, entries, result->reference.num_tokens);
    const bool is_promoted = result->query_probe_ppm[query] >= options_.promotion.threshold_ppm;
    result->heads[query / group].query_types.push_back(
        is_promoted ? HeadType::kDense : TypeOfRung(ladder_.rungs[static_cast<size_t>(rung)]));
  }
}

void HeadClassifier::FitBudgets(Classification* result) const {
  const std::vector<std::vector<int32_t>> samples = masses_.ByLength(kFewestOfALength);
  if (samples.size() < 2) {
    return;
  }
  std::vector<std::vector<std::pair<int64_t, int64_t>>> points(result->heads.size());
  for (const std::vector<int32_t>& sample : samples) {
    const ReferenceLength length = masses_.Reference(sample);
    const std::vector<int64_t> entries = LadderEntries(ladder_, length, options_.recent_tokens);
    const std::vector<int32_t> rungs = Rungs(sample, entries, length.num_tokens);
    for (size_t i = 0; i < points.size(); ++i) {
      points[i].emplace_back(length.num_tokens, entries[static_cast<size_t>(rungs[i])]);
    }
  }
  for (size_t i = 0; i < points.size(); ++i) {
    HeadEntry& head = result->heads[i];
    if (head.type != HeadType::kDense) {
      const AffineBudget budget = FitBudget(points[i]);
      head.budget_tokens = budget.tokens;
      head.budget_ppm = budget.ppm;
    }
  }
}

void HeadClassifier::SetPaperTypes(Classification* result) const {
  if (paper_masses_.prompts == 0) {
    return;
  }
  const size_t num_rungs = paper_ladder_.rungs.size();
  for (size_t i = 0; i < result->heads.size(); ++i) {
    size_t rung = 0;
    while (rung + 1 < num_rungs &&
           paper_masses_.at(i * num_rungs + rung) < options_.pass.theta_ppm) {
      ++rung;
    }
    result->paper_types.push_back(TypeOfRung(paper_ladder_.rungs[rung]));
  }
}

AffineBudget FitBudget(const std::vector<std::pair<int64_t, int64_t>>& points) {
  HEADROOM_CHECK(points.size() >= 2);
  const auto count = static_cast<__int128>(points.size());
  __int128 x = 0;
  __int128 y = 0;
  __int128 xx = 0;
  __int128 xy = 0;
  for (const auto& [tokens, entries] : points) {
    x += tokens;
    y += entries;
    xx += static_cast<__int128>(tokens) * tokens;
    xy += static_cast<__int128>(tokens) * entries;
  }
  const __int128 spread = count * xx - x * x;
  const __int128 slope = count * xy - x * y;  // b = slope / spread
  const __int128 offset = y * xx - x * xy;    // a = offset / spread
  if (spread <= 0 || slope <= 0) {
    return {.tokens = Rounded(y, count), .ppm = 0};
  }
  if (offset < 0) {
    return {.tokens = 0, .ppm = std::min(kPpm, Rounded(xy * kPpm, xx))};
  }
  if (slope >= spread) {
    return {.tokens = 0, .ppm = kPpm};
  }
  return {.tokens = Rounded(offset, spread), .ppm = Rounded(slope * kPpm, spread)};
}

bool StopRule::ShouldStop(size_t num_prompts, std::vector<HeadType> types) {
  HEADROOM_CHECK(IsDue(num_prompts) && num_prompts / kStride == history_.size() + 1);
  history_.push_back(std::move(types));
  const size_t earlier = num_prompts * 3 / 4 / kStride;
  if (num_prompts < fewest_ || earlier == 0) {
    return false;
  }
  const std::vector<HeadType>& now = history_.back();
  const std::vector<HeadType>& then = history_[earlier - 1];
  size_t changed = 0;
  for (size_t i = 0; i < now.size(); ++i) {
    changed += now[i] != then[i] ? 1 : 0;
  }
  return changed * 100 < now.size();
}

}  // namespace headroom::profiler
