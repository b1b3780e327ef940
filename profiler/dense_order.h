// In which order dense heads should be filled: by what each is worth to an answer.
//
// Probe scores say that a head looks at what is asked for; several heads look at it and few of them
// matter. Backward elimination measures that: from the heads with the highest scores, all kept
// whole, the one goes whose loss costs the answers least, again and again. What is measured is the
// likelihood of the right answer when the question comes after the compression. Heads that are left
// out hold about as much as floors give. One thread.
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
  int32_t num_heads = 24;
  // While more than so many are left, two go at a time.
  int32_t num_single = 12;
  int32_t max_answer = 24;  // tokens that the full cache may take to say what was hidden
};

// The fill ranks of `map`'s heads (HeadEntry::fill_rank): [heads], 0 is filled first, -1 was not
// tried. All -1 where fewer than two heads are dense or no prompt has an answer to measure.
// `prompts` are short enough that all of them fit into memory at once.
StatusOr<std::vector<int32_t>> OrderDenseHeads(const EvalModel& model,
                                               const std::vector<NeedlePrompt>& prompts,
                                               const DenseOrderOptions& options,
                                               const engine::HeadMap& map, EvalObserver& observer);

// Forward passes that the search takes with so many heads and prompts; progress counts them.
int64_t DenseOrderWork(const engine::HeadMap& map, size_t num_prompts,
                       const DenseOrderOptions& options);

}  // namespace headroom::profiler
