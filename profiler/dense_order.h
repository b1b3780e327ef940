// In which order dense heads should be filled: by what each is worth to an answer.
//
// Probe scores say that a head looks at what is asked for; several heads look at it and few of them
// matter. Elimination (head_elimination.h) measures that, from the heads with the highest scores,
// while the others hold the mandatory tokens only: whole ones, and as `adaptive` fills them at a
// small retention, with content alone, once as few are left as that holds. What is measured is how
// likely the full cache's answer, the code and the token before it, is not given when the question
// comes after the compression. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "engine/kv/head_map.h"
#include "profiler/evaluation/cache_set.h"
#include "profiler/evaluation/needle_prompt.h"
#include "profiler/evaluation/observer.h"

namespace headroom::profiler {

struct DenseOrderOptions {
  kernels::KvDType kv_dtype = kernels::KvDType::kF32;
  // Heads that are tried, the highest probe scores first; the others follow by score.
  int32_t num_heads = 40;
  // Prompts that are measured, the first that the full cache answers; all their full caches are
  // held at once, no more of them than max_tokens.
  int32_t num_samples = 40;
  int64_t max_tokens = 49'152;
  int32_t max_answer = 24;             // tokens that the full cache may take to say what was hidden
  std::vector<int32_t> eos_token_ids;  // end its answer
};

// The fill ranks of `map`'s heads (HeadEntry::fill_rank): [heads], 0 is filled first, -1 was not
// tried. All -1 where fewer than two heads are dense or no prompt has an answer to measure. Text
// that the full cache does not answer is left out; where it answers none, the code is expected
// behind its lead.
StatusOr<std::vector<int32_t>> OrderDenseHeads(const EvalModel& model,
                                               const std::vector<NeedlePrompt>& prompts,
                                               const DenseOrderOptions& options,
                                               const engine::HeadMap& map, EvalObserver& observer);

}  // namespace headroom::profiler
