// ProbeScores: how strongly heads went for what probe prompts made them copy, and which of them
// that promotes.
//
// Mean mass cannot see a head that fetches a fact once in a thousand rows; probes can. Copy scores
// come from needles, induction scores from repeated random blocks; what blocks say of copying (the
// same token's earlier place) counts for neither.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/profile_record.h"
#include "profiler/prompt_masses.h"

namespace headroom::profiler {

// A head is promoted when at least `share_ppm` of the prompts of a kind, and two of them where there
// are two, score it `threshold_ppm`.
struct PromotionRule {
  int64_t threshold_ppm = 100'000;
  int64_t share_ppm = 50'000;
};

class ProbeScores {
 public:
  explicit ProbeScores(const HeadShape& shape) : shape_(shape) {}

  void Add(const ProbeRecord& record);
  void Sort();  // into an order of their contents
  bool empty() const { return copy_.scores.empty() && induction_.scores.empty(); }

  // Of a KV head, the largest of its query heads' mean scores: [heads], 0 without probes.
  std::vector<int64_t> Copy() const { return Means(copy_); }
  std::vector<int64_t> Induction() const { return Means(induction_); }
  // The larger mean score of every query head: [layers, query heads].
  std::vector<int64_t> QueryHeads() const;

  // [heads]: 1 where promoted; over all probes, or over a resample drawn by (seed, index).
  std::vector<uint8_t> Promoted(const PromotionRule& rule) const;
  std::vector<uint8_t> PromotedInResample(const PromotionRule& rule, uint64_t seed,
                                          int32_t index) const;

 private:
  struct Kind {
    std::vector<std::vector<int32_t>> scores;  // per prompt [heads], the largest of the group
    std::vector<int64_t> sums;                 // [layers, query heads]
  };

  void AddTo(const std::vector<int32_t>& query_scores, Kind* kind) const;
  std::vector<int64_t> Means(const Kind& kind) const;
  void Promote(const Kind& kind, const std::vector<int32_t>& sample, const PromotionRule& rule,
               std::vector<uint8_t>* promoted) const;

  const HeadShape shape_;
  Kind copy_;
  Kind induction_;
};

}  // namespace headroom::profiler
