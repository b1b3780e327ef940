// PromptReader: one prompt at a time through a model whose cache keeps everything, with somebody
// watching every layer's queries and keys go by. What statistics and probes are made with.
//
// The forward pass is the engine's own, in chunks, with its fused attention: no map of n x n
// probabilities exists anywhere. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "engine/kv/kv_cache.h"
#include "profiler/evaluation/cache_set.h"

namespace headroom::profiler {

// Rows of one chunk at one layer, whose keys and values are in the cache.
struct ChunkRows {
  int32_t layer = 0;
  int32_t row_begin = 0;  // position of the first row in the prompt
  int32_t num_rows = 0;
  bool is_last = false;            // the layer's last rows: every slot of the prompt is stored
  const float* queries = nullptr;  // [num_rows, stride], rotated; query head h at h * head_dim
  int64_t stride = 0;
  kernels::KvArena arena;
  // [num_kv_heads], slots [0, row_begin + num_rows), slot = position; valid during the call.
  const kernels::KvHeadView* heads = nullptr;
};

class ChunkObserver {
 public:
  virtual ~ChunkObserver() = default;
  // Chunks in order, the layers of each from the first to the last.
  virtual void Observe(const ChunkRows& rows) = 0;
};

class PromptReader {
 public:
  // A cache for one prompt of up to `max_tokens`. What `model` refers to outlives the reader; the
  // transformer was made for model.max_rows rows at least. Error: ResourceExhausted.
  static StatusOr<std::unique_ptr<PromptReader>> Create(const EvalModel& model,
                                                        kernels::KvDType dtype, int32_t max_tokens);

  // Runs the prompt of 1 to max_tokens ids, each below the vocabulary size.
  void Read(std::span<const int32_t> ids, ChunkObserver& observer);

  const EvalModel& model() const { return model_; }
  int32_t max_tokens() const { return max_tokens_; }
  int32_t num_layers() const { return model_.model.config().num_hidden_layers; }
  int32_t num_query_heads() const { return model_.model.config().num_attention_heads; }
  int32_t num_kv_heads() const { return model_.model.config().num_key_value_heads; }
  int32_t group_size() const { return model_.model.config().group_size(); }

 private:
  PromptReader(const EvalModel& model, int32_t max_tokens)
      : model_(model), max_tokens_(max_tokens) {}

  const EvalModel model_;
  const int32_t max_tokens_;
  std::unique_ptr<engine::KvCache> cache_;
};

}  // namespace headroom::profiler
