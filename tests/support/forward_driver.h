// Drives a model and a KvCache by hand, without an engine: chunks of every phase, then decode rows,
// of one sequence or of several in the same batches.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/kv/kv_cache.h"
#include "models/model.h"

namespace headroom::testing {

struct DrivenSequence {
  // Set by the test.
  std::vector<int32_t> prompt;  // [N]
  std::vector<int32_t> feed;    // tokens of the decode rows, in order
  engine::KvPolicySpec spec;
  int32_t content_end = -1;                                        // -1: N
  std::shared_ptr<const std::vector<engine::TokenClass>> classes;  // [N]; null: unknown
  std::vector<engine::TokenClass> feed_classes;                    // of `feed`; empty: kOther
  int32_t chunk = 64;                                              // rows of one prefill segment

  // Set by the driver.
  int32_t handle = -1;
  int32_t phase = 0;
  int32_t rows_done = 0;  // of the phase
  int32_t num_fed = 0;
  bool decoding = false;
  std::vector<std::vector<float>> logits;  // last prompt row, then each decode row: [vocab]
  // Positions that each logits row saw, [logits rows][layer][kv head]; the first entry is what
  // prefill left.
  std::vector<std::vector<std::vector<std::vector<int32_t>>>> kept;

  bool done() const { return decoding && num_fed == static_cast<int32_t>(feed.size()); }
};

class ForwardDriver {
 public:
  // `store` is what the model sees: the cache itself or a decorator of it.
  ForwardDriver(models::Model& model, engine::KvCache& cache, models::KvStore& store)
      : model_(model), cache_(cache), store_(store) {}
  ForwardDriver(models::Model& model, engine::KvCache& cache)
      : ForwardDriver(model, cache, cache) {}

  void Open(DrivenSequence& sequence);
  void Close(DrivenSequence& sequence);

  // One forward pass with the next rows of every sequence that is not done; invariants of the
  // cache are checked after it.
  void Step(const std::vector<DrivenSequence*>& sequences);
  // Steps until all are done.
  void Run(const std::vector<DrivenSequence*>& sequences);
  // Until this sequence decodes.
  void Prefill(DrivenSequence& sequence);

  std::vector<std::vector<std::vector<int32_t>>> Kept(const DrivenSequence& sequence) const;

 private:
  models::RowSegment AddRows(DrivenSequence& sequence, models::ForwardBatch& batch);
  void Advance(DrivenSequence& sequence, const models::RowSegment& segment);

  models::Model& model_;
  engine::KvCache& cache_;
  models::KvStore& store_;
};

// The likeliest token behind `prompt` when all but its last token is compressed under `spec` and
// the last one is fed behind it. The sequence is closed again.
int32_t NextToken(ForwardDriver& driver, const engine::KvPolicySpec& spec,
                  const std::vector<int32_t>& prompt);

}  // namespace headroom::testing
