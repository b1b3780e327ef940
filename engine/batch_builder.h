// A step's rows as a ForwardBatch.
//
// Segments of equal layer ranges stand side by side, ordered by where they begin and then by where
// they end: rows [0, T), then [0, L), then [T, L). The rows that run a layer are then one contiguous
// block of the batch, or a few where policies of different phases meet.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/kv/kv_cache.h"
#include "engine/sequence.h"
#include "models/forward_batch.h"

namespace headroom::engine {

// Rows of one sequence in this step.
struct StepRows {
  Sequence* sequence = nullptr;
  Choice* choice = nullptr;  // whose decode rows they are; null: prompt rows
  bool replays = false;      // decode rows whose tokens are known: no logits
  int32_t num_rows = 0;
  models::RowSegment segment = {};  // set by Build
  int32_t logit_index = -1;         // set by Build: row of `logits`, or -1
};

class BatchBuilder {
 public:
  // Orders `rows`, sets what each entry says of itself, and returns the batch, `logits` unset. The
  // batch is valid until the next call. Prefilling sequences run the next rows of their phase,
  // decoding ones their last token, preempted ones first all tokens before it.
  models::ForwardBatch& Build(int32_t num_layers, const KvCache& cache,
                              std::vector<StepRows>& rows);

 private:
  void AddPrefill(const KvCache& cache, StepRows& rows);
  void AddDecode(const KvCache& cache, StepRows& rows);

  models::ForwardBatch batch_;
};

}  // namespace headroom::engine
