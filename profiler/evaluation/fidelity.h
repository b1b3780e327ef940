// Fidelity: how far a compressed cache moves the model's predictions on real text.
//
// Per document the prefix is prefilled and compressed under a row's policy, then the true
// continuation is fed token by token (teacher forcing) and each next-token distribution compared
// with the reference row's. The first token of the continuation is not scored: its prediction comes
// from the prefill, which no eviction has touched yet.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "profiler/evaluation/cache_set.h"
#include "profiler/evaluation/documents.h"
#include "profiler/evaluation/eval_row.h"
#include "profiler/evaluation/observer.h"
#include "profiler/evaluation/report.h"
#include "profiler/evaluation/token_metrics.h"

namespace headroom::profiler {

struct FidelityOptions {
  int32_t continuation_tokens = 256;  // >= 2
  // Short contexts of the key-token rule: between short_context - short_stride and short_context
  // tokens before the predicted one.
  int32_t short_context = 256;
  int32_t short_stride = 64;
  KeyTokenRule key_tokens;
};

// Whether every document is longer than its continuation; the error names the document.
Status CheckDocuments(const std::vector<Document>& documents, const FidelityOptions& options,
                      int32_t max_context);

// The total that MeasureFidelity's progress counts up to: tokens, once per row that runs.
int64_t FidelityWork(const std::vector<Document>& documents, const std::vector<EvalRow>& rows);

// Measures; `report` gets documents and scores. `caches` holds the longest document.
Status MeasureFidelity(const std::vector<Document>& documents, const FidelityOptions& options,
                       const std::vector<EvalRow>& rows, CacheSet& caches, EvalObserver& observer,
                       FidelityReport* report);

// Fills `report->groups` from documents and scores.
void SummarizeFidelity(int32_t num_resamples, uint64_t seed, FidelityReport* report);

}  // namespace headroom::profiler
