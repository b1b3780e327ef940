// Needles: whether a compressed cache still holds what a question asks for.
//
// Two protocols. Aware: the question is in the prompt that is compressed, as papers measure. Then
// the first generated token comes from prefill logits, which no eviction has touched: scores
// "after the first token" and ranking leave it out. Agnostic: the context is compressed before the
// question is seen, and the question is fed behind it, as in a conversation.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "models/tokenizer/tokenizer.h"
#include "profiler/evaluation/cache_set.h"
#include "profiler/evaluation/eval_row.h"
#include "profiler/evaluation/needle_prompt.h"
#include "profiler/evaluation/observer.h"
#include "profiler/evaluation/report.h"

namespace headroom::profiler {

struct NeedleOptions {
  std::vector<Protocol> protocols = {Protocol::kAware, Protocol::kAgnostic};
  int32_t max_new_tokens = 24;                   // of text tasks
  std::vector<int32_t> eos_token_ids;            // end a text answer
  const models::Tokenizer* tokenizer = nullptr;  // of text tasks
};

// The longest sequence that a prompt needs: prompt and answer.
int32_t TokensNeeded(const NeedlePrompt& prompt, const NeedleOptions& options);

// The total that MeasureNeedles' progress counts up to: tokens, once per row that runs and
// protocol.
int64_t NeedleWork(const NeedleTask& task, const NeedleOptions& options,
                   const std::vector<EvalRow>& rows);

// Measures every prompt under every row and protocol; appends a NeedleReport per protocol.
Status MeasureNeedles(const NeedleTask& task, const NeedleOptions& options,
                      const std::vector<EvalRow>& rows, CacheSet& caches, EvalObserver& observer,
                      std::vector<NeedleReport>* reports);

// Fills the summaries of `report` from its scores.
void SummarizeNeedles(int32_t num_resamples, uint64_t seed, NeedleReport* report);

}  // namespace headroom::profiler
