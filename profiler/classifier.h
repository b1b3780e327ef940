// HeadClassifier: from the records of profiling prompts to the type, budget and confidence of every
// KV head [head types after FastGen, 2310.01801; the rules: docs/profiling.md].
//
// A head gets the cheapest rung of the ladder whose kept mass is enough for its neediest query
// head, in nine of ten prompts and in the worst domain. Value errors and probes promote, nothing
// demotes. The result depends on the records, not on their order. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/kv/head_map.h"
#include "profiler/ladder.h"
#include "profiler/probe_scores.h"
#include "profiler/profile_record.h"
#include "profiler/prompt_masses.h"

namespace headroom::profiler {

struct ClassifierOptions {
  PassRule pass;
  PromotionRule promotion;
  int64_t value_error_limit_ppm = 0;  // above it the next rung; 0: value errors do not promote
  int64_t recent_tokens = 64;         // w0
  int32_t num_resamples = 200;
  uint64_t seed = 1;
};

// The classifier's findings.
struct Classification {
  std::vector<engine::HeadEntry> heads;  // [layers, KV heads]
  ReferenceLength reference;
  std::vector<int64_t> overlap_ppm;      // [layers], mean over prompts; empty: not measured
  // [layers, KV heads]: what nine of ten of the last rows keep under the head's rung, one by one,
  // mean over prompts; empty: not measured.
  std::vector<int64_t> late_p10_ppm;
  std::vector<uint8_t> promoted;         // [layers, KV heads]: dense because of probes alone
  std::vector<int64_t> query_probe_ppm;  // [layers, query heads]
  // Types by the paper's statistic (all rows, in sample, mean over prompts); empty: not measured.
  std::vector<engine::HeadType> paper_types;
};

class HeadClassifier {
 public:
  // `paper_ladder` says what PromptRecord::paper_mass_ppm holds.
  HeadClassifier(const HeadShape& shape, Ladder ladder, Ladder paper_ladder,
                 const ClassifierOptions& options);

  void Add(const PromptRecord& record);
  void AddProbe(const ProbeRecord& record) { probes_.Add(record); }
  size_t num_prompts() const { return masses_.size(); }

  // The types as of now, without confidence: cheap enough to ask every few prompts.
  std::vector<engine::HeadType> Types() const;
  // Everything. Afterwards nothing may be added.
  Classification Classify();

 private:
  // Sums over prompts that need no order.
  struct Means {
    int64_t prompts = 0;
    std::vector<int64_t> sums;
    void Add(const std::vector<int32_t>& values);
    int64_t at(size_t index) const { return sums[index] / prompts; }
  };

  void AddClassMasses(const PromptRecord& record);
  void AddQueryPasses(const PromptRecord& record);
  // The rung of every head over a sample, without probes.
  std::vector<int32_t> Rungs(std::span<const int32_t> sample, std::span<const int64_t> entries,
                             int64_t reference_tokens) const;
  void SetConfidence(const std::vector<int32_t>& rungs, std::span<const int64_t> entries,
                     Classification* result) const;
  void SetRecovery(Classification* result) const;
  void SetDomains(std::span<const int64_t> entries, Classification* result) const;
  void SetQueryTypes(std::span<const int64_t> entries, Classification* result) const;
  void FitBudgets(Classification* result) const;
  void SetPaperTypes(Classification* result) const;

  const HeadShape shape_;
  const Ladder ladder_;
  const Ladder paper_ladder_;
  const ClassifierOptions options_;
  PromptMasses masses_;
  ProbeScores probes_;
  Means value_errors_;               // [heads, rungs]
  Means paper_masses_;               // [heads, rungs of the paper's ladder], least of the group
  Means overlap_;                    // [layers]
  Means late_p10_;                   // [heads, rungs]
  std::vector<int64_t> class_sums_;  // [heads, 5], over the group too
  // Of each domain the weight of all prompts, and of those that pass: [query heads, rungs].
  std::map<std::string, std::pair<int64_t, std::vector<int64_t>>> query_passes_;
};

// A budget a + b * N through points (N, entries): least squares with a, b >= 0 and b <= 1. Needs
// two points.
struct AffineBudget {
  int64_t tokens = 0;
  int64_t ppm = 0;
};
AffineBudget FitBudget(const std::vector<std::pair<int64_t, int64_t>>& points);

// Whether profiling may stop: at a multiple of 32 prompts, from `fewest` prompts on, fewer than 1 %
// of the heads have another type than at three quarters of the prompts.
class StopRule {
 public:
  explicit StopRule(size_t fewest = 128) : fewest_(fewest) {}
  static bool IsDue(size_t num_prompts) { return num_prompts > 0 && num_prompts % kStride == 0; }
  // Called whenever IsDue, with what Types() says.
  bool ShouldStop(size_t num_prompts, std::vector<engine::HeadType> types);

 private:
  static constexpr size_t kStride = 32;
  const size_t fewest_;
  std::vector<std::vector<engine::HeadType>> history_;  // at 32, 64, ... prompts
};

}  // namespace headroom::profiler
