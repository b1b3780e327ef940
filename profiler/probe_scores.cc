#include "profiler/probe_scores.h"

#include <algorithm>

#include "base/check.h"
#include "base/philox.h"

namespace headroom::profiler {
namespace {

constexpr int64_t kPpm = 1'000'000;
constexpr int64_t kFewestFirings = 2;
// Streams of the draws, apart from those of prompts.
constexpr uint64_t kCopyStream = uint64_t{1} << 40;
constexpr uint64_t kInductionStream = uint64_t{2} << 40;

std::vector<int32_t> Draw(size_t count, uint64_t seed, uint64_t stream) {
  const Philox random(seed, stream);
  std::vector<int32_t> sample(count, 0);
  for (size_t i = 0; i < count; ++i) {
    ++sample[static_cast<size_t>(random.Uniform(i) * static_cast<double>(count))];
  }
  return sample;
}

}  // namespace

void ProbeScores::AddTo(const std::vector<int32_t>& query_scores, Kind* kind) const {
  if (query_scores.empty()) {
    return;
  }
  const auto group = static_cast<size_t>(shape_.group_size());
  HEADROOM_CHECK(query_scores.size() == shape_.num_heads() * group);
  kind->sums.resize(query_scores.size(), 0);
  std::vector<int32_t> heads(shape_.num_heads(), 0);
  for (size_t i = 0; i < query_scores.size(); ++i) {
    kind->sums[i] += query_scores[i];
    heads[i / group] = std::max(heads[i / group], query_scores[i]);
  }
  kind->scores.push_back(std::move(heads));
}

void ProbeScores::Add(const ProbeRecord& record) {
  if (record.kind != "induction") {
    AddTo(record.copy_ppm, &copy_);
  }
  AddTo(record.induction_ppm, &induction_);
}

void ProbeScores::Sort() {
  std::sort(copy_.scores.begin(), copy_.scores.end());
  std::sort(induction_.scores.begin(), induction_.scores.end());
}

std::vector<int64_t> ProbeScores::Means(const Kind& kind) const {
  std::vector<int64_t> means(shape_.num_heads(), 0);
  const auto group = static_cast<size_t>(shape_.group_size());
  for (size_t i = 0; i < kind.sums.size(); ++i) {
    means[i / group] =
        std::max(means[i / group], kind.sums[i] / static_cast<int64_t>(kind.scores.size()));
  }
  return means;
}

std::vector<int64_t> ProbeScores::QueryHeads() const {
  std::vector<int64_t> scores(shape_.num_heads() * static_cast<size_t>(shape_.group_size()), 0);
  for (const Kind* kind : {&copy_, &induction_}) {
    for (size_t i = 0; i < kind->sums.size(); ++i) {
      scores[i] = std::max(scores[i], kind->sums[i] / static_cast<int64_t>(kind->scores.size()));
    }
  }
  return scores;
}

void ProbeScores::Promote(const Kind& kind, const std::vector<int32_t>& sample,
                          const PromotionRule& rule, std::vector<uint8_t>* promoted) const {
  const auto prompts = static_cast<int64_t>(kind.scores.size());
  for (size_t head = 0; head < promoted->size(); ++head) {
    int64_t fired = 0;
    for (size_t i = 0; i < kind.scores.size(); ++i) {
      fired += kind.scores[i][head] >= rule.threshold_ppm ? sample[i] : 0;
    }
    // One prompt alone is chance: a head that happens to look at the needle once.
    if (fired >= std::clamp<int64_t>(prompts, 1, kFewestFirings) &&
        fired * kPpm >= prompts * rule.share_ppm) {
      (*promoted)[head] = 1;
    }
  }
}

std::vector<uint8_t> ProbeScores::Promoted(const PromotionRule& rule) const {
  std::vector<uint8_t> promoted(shape_.num_heads(), 0);
  for (const Kind* kind : {&copy_, &induction_}) {
    Promote(*kind, std::vector<int32_t>(kind->scores.size(), 1), rule, &promoted);
  }
  return promoted;
}

std::vector<uint8_t> ProbeScores::PromotedInResample(const PromotionRule& rule, uint64_t seed,
                                                     int32_t index) const {
  std::vector<uint8_t> promoted(shape_.num_heads(), 0);
  const auto offset = static_cast<uint64_t>(index);
  Promote(copy_, Draw(copy_.scores.size(), seed, kCopyStream + offset), rule, &promoted);
  Promote(induction_, Draw(induction_.scores.size(), seed, kInductionStream + offset), rule,
          &promoted);
  return promoted;
}

}  // namespace headroom::profiler
