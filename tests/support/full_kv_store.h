// The simplest KvStore: one sequence, nothing is ever evicted. Independent of engine/kv, so that
// goldens of the forward pass do not rest on the cache that they are used to check.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/kv_store.h"
#include "models/transformer.h"

namespace headroom::testing {

class FullKvStore final : public models::KvStore {
 public:
  FullKvStore(const models::ModelConfig& config, kernels::KvDType dtype, int32_t max_tokens,
              kernels::Backend& backend);

  const kernels::KvArena& arena() const override { return arena_; }
  void Append(const models::RowSegment& segment, int32_t layer, const int32_t* positions,
              int64_t* dst_slots) override;
  const kernels::KvHeadView* View(const models::RowSegment& segment, int32_t layer,
                                  const int32_t* positions, int32_t* visible) override;
  void CaptureQueries(const models::RowSegment&, int32_t, const int32_t*, const float*,
                      int64_t) override {}
  void StashRows(const models::RowSegment&, const int32_t*, const float*, int64_t) override;
  void LoadStash(const models::RowSegment&, const int32_t*, float*, int64_t) override;
  void FinishLayer(const models::RowSegment&, int32_t) override {}

 private:
  std::unique_ptr<kernels::Buffer> memory_;
  kernels::KvArena arena_;
  std::vector<std::vector<std::vector<int32_t>>> pages_;  // [layer][kv_head][page]
  std::vector<std::vector<kernels::KvHeadView>> views_;   // [layer][kv_head]
};

// Runs a prompt and greedy decoding through a model, in chunks of at most `chunk` rows.
class GreedyRunner {
 public:
  GreedyRunner(models::Model& model, models::KvStore& kv, int32_t chunk)
      : model_(model), kv_(kv), chunk_(chunk) {}

  // Feeds rows at the next positions; returns the logits of the last one [vocab].
  std::vector<float> Feed(const std::vector<int32_t>& ids);
  // The same, returning the logits of every row [ids.size() * vocab].
  std::vector<float> FeedAll(const std::vector<int32_t>& ids);

 private:
  void Run(const std::vector<int32_t>& ids, bool all_logits, std::vector<float>* logits);

  models::Model& model_;
  models::KvStore& kv_;
  int32_t chunk_;
  int32_t next_position_ = 0;
};

// Index of the largest value; ties to the lowest.
int32_t ArgMax(const float* logits, int32_t vocab_size);

}  // namespace headroom::testing
