// PromptMasses: kept masses of every head over the profiling prompts, and what they say of a
// sample of these prompts.
//
// Of a prompt it keeps one number per KV head and rung, the least over the group's query heads:
// memory does not depend on prompt lengths. Whole-number sums make every answer independent of the
// order in which prompts came.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "profiler/ladder.h"
#include "profiler/profile_record.h"

namespace headroom::profiler {

struct HeadShape {
  int32_t num_layers = 0;
  int32_t num_query_heads = 0;  // of a layer
  int32_t num_kv_heads = 0;

  int32_t group_size() const { return num_query_heads / num_kv_heads; }
  size_t num_heads() const {
    return static_cast<size_t>(num_layers) * static_cast<size_t>(num_kv_heads);
  }
};

// How a head's masses are judged.
struct PassRule {
  int64_t theta_ppm = 950'000;
  int64_t domain_slack_ppm = 30'000;  // every domain's mean may lie so far below theta
};

class PromptMasses {
 public:
  PromptMasses(const HeadShape& shape, size_t num_rungs);

  // `record` has the shape's sizes; its last rung counts as 1 whatever it says.
  void Add(const PromptRecord& record);
  // Puts the prompts into an order of their contents. Before any sample is drawn.
  void Sort();

  size_t size() const { return prompts_.size(); }
  const std::vector<std::string>& domains() const { return domains_; }  // ascending after Sort
  int32_t domain(size_t prompt) const { return prompts_[prompt].domain; }
  int32_t num_tokens(size_t prompt) const { return prompts_[prompt].num_tokens; }
  std::span<const int32_t> masses(size_t prompt) const { return prompts_[prompt].mass_ppm; }
  // Weighted means over the prompts of a sample; a multiplicity for every prompt.
  ReferenceLength Reference(std::span<const int32_t> sample) const;

  // [heads, rungs]: whether P10 over the sample is at least theta and the worst domain's mean at
  // least theta - slack. Domains weigh equally.
  std::vector<uint8_t> Passes(const PassRule& rule, std::span<const int32_t> sample) const;
  // [heads, rungs] over all prompts: the smallest mass at which a tenth of the weight is reached,
  // and the weighted mean.
  std::vector<int64_t> P10() const;
  std::vector<int64_t> Mean() const;

  // Every prompt once; those of one domain; those of a length class.
  std::vector<int32_t> All() const { return std::vector<int32_t>(prompts_.size(), 1); }
  std::vector<int32_t> OfDomain(int32_t domain) const;
  // As many prompts of each domain as it has, drawn with replacement by (seed, index).
  std::vector<int32_t> Resample(uint64_t seed, int32_t index) const;
  // Samples by length, the shortest first: a class ends where a prompt is half as long again as
  // its first. Classes of fewer than `fewest` prompts are left out.
  std::vector<std::vector<int32_t>> ByLength(size_t fewest) const;

 private:
  struct Prompt {
    int32_t domain = 0;
    int64_t weight = 0;  // in thousandths, at least 1
    int32_t num_tokens = 0;
    int32_t num_special = 0;
    int32_t num_punctuation = 0;
    std::vector<int32_t> mass_ppm;  // [heads, rungs]
  };

  int32_t DomainIndex(const std::string& name);
  // Of each prompt, so that domains weigh the same: [prompts].
  std::vector<int64_t> BalancedWeights() const;

  const HeadShape shape_;
  const size_t num_rungs_;
  std::vector<std::string> domains_;
  std::vector<Prompt> prompts_;
};

}  // namespace headroom::profiler
