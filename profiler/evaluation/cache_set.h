// The model under evaluation, and a KV cache for each KV type, sized for what will be run.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "engine/kv/kv_cache.h"
#include "engine/token_classes.h"
#include "kernels/ops.h"
#include "models/model.h"
#include "profiler/evaluation/eval_row.h"
#include "profiler/evaluation/sequence_runner.h"

namespace headroom::profiler {

// All references outlive the evaluation.
struct EvalModel {
  models::Model& model;
  kernels::Backend& backend;
  const engine::KvPolicyRegistry& policies;
  const Clock& clock;
  engine::KvModelShape shape;
  float attention_scale = 0.0f;
  int32_t max_rows = 512;                        // rows, and rows of logits, of one forward pass
  engine::TokenClasses token_classes = nullptr;  // of the vocabulary; null without a tokenizer
};

// What one sequence costs under a row's policy, counted from the cache.
struct KvCost {
  int64_t physical_bytes = 0;      // pages held after prefill * bytes of a page
  int64_t physical_bytes_end = 0;  // the same after the last fed token
  int64_t nominal_bytes = 0;       // kept entries * bytes of an entry, no page rounding
  int64_t entries = 0;             // kept (token, layer, KV head) triples after prefill
  int64_t propagated_tokens = 0;   // rows that ran above the TSP layer
};

class CacheSet {
 public:
  // A source, a sequence made of it, and a fork of that.
  static constexpr int64_t kSequencesAtOnce = 3;

  // Caches for the KV types of `rows` that hold any three sequences of `max_tokens` positions under
  // the rows' policies at once, or so many as said. Error: ResourceExhausted when memory does not
  // suffice.
  static StatusOr<std::unique_ptr<CacheSet>> Create(const EvalModel& model,
                                                    const std::vector<EvalRow>& rows,
                                                    int32_t max_tokens,
                                                    int64_t num_sequences = kSequencesAtOnce);

  SequenceRunner& runner(kernels::KvDType dtype);
  int64_t page_bytes(kernels::KvDType dtype) const;

  // The cost of an open sequence, right after its prefill.
  KvCost CostAfterPrefill(const DecodingSequence& sequence, kernels::KvDType dtype);
  // Pages held now, in bytes.
  int64_t PhysicalBytes(const DecodingSequence& sequence, kernels::KvDType dtype);

 private:
  struct Entry {
    kernels::KvDType dtype = kernels::KvDType::kF32;
    std::unique_ptr<engine::KvCache> cache;
    std::unique_ptr<SequenceRunner> runner;
  };
  Entry& at(kernels::KvDType dtype);
  Status Add(const EvalModel& model, kernels::KvDType dtype, int64_t num_pages);

  std::vector<Entry> entries_;
};

}  // namespace headroom::profiler
