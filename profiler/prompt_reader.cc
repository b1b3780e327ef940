#include "profiler/prompt_reader.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/check.h"

namespace headroom::profiler {
namespace {

using models::RowSegment;

// Passes everything on to the cache and shows the rows to the observer.
class ObservedStore final : public models::KvStore {
 public:
  ObservedStore(models::KvStore& store, ChunkObserver& observer)
      : store_(store), observer_(observer) {}

  const kernels::KvArena& arena() const override { return store_.arena(); }
  void Append(const RowSegment& segment, int32_t layer, const int32_t* positions,
              int64_t* dst_slots) override {
    store_.Append(segment, layer, positions, dst_slots);
  }
  const kernels::KvHeadView* View(const RowSegment& segment, int32_t layer,
                                  const int32_t* positions, int32_t* visible) override {
    return store_.View(segment, layer, positions, visible);
  }
  void CaptureQueries(const RowSegment& segment, int32_t layer, const int32_t* positions,
                      const float* queries, int64_t stride) override {
    store_.CaptureQueries(segment, layer, positions, queries, stride);
    ChunkRows rows;
    rows.layer = layer;
    rows.row_begin = positions[0];
    rows.num_rows = segment.num_rows;
    rows.is_last = segment.ends_phase;
    rows.queries = queries;
    rows.stride = stride;
    rows.arena = store_.arena();
    visible_.resize(static_cast<size_t>(segment.num_rows) *
                    static_cast<size_t>(rows.arena.geometry.num_kv_heads));
    rows.heads = store_.View(segment, layer, positions, visible_.data());
    observer_.Observe(rows);
  }
  void StashRows(const RowSegment& segment, const int32_t* positions, const float* rows,
                 int64_t stride) override {
    store_.StashRows(segment, positions, rows, stride);
  }
  void LoadStash(const RowSegment& segment, const int32_t* positions, float* rows,
                 int64_t stride) override {
    store_.LoadStash(segment, positions, rows, stride);
  }
  void FinishLayer(const RowSegment& segment, int32_t layer) override {
    store_.FinishLayer(segment, layer);
  }

 private:
  models::KvStore& store_;
  ChunkObserver& observer_;
  std::vector<int32_t> visible_;
};

}  // namespace

StatusOr<std::unique_ptr<PromptReader>> PromptReader::Create(const EvalModel& model,
                                                             kernels::KvDType dtype,
                                                             int32_t max_tokens) {
  HEADROOM_CHECK(max_tokens >= 1 && model.max_rows >= 1);
  const models::ModelConfig& config = model.model.config();
  const int64_t num_pages = int64_t{config.num_hidden_layers} * config.num_key_value_heads *
                            (max_tokens / kernels::kPageSize + 2);
  if (num_pages > std::numeric_limits<int32_t>::max()) {
    return ResourceExhausted("prompts of {} tokens need {} KV pages, wanted at most {}", max_tokens,
                             num_pages, std::numeric_limits<int32_t>::max());
  }
  engine::KvCacheConfig cache;
  cache.num_layers = config.num_hidden_layers;
  cache.hidden_size = config.hidden_size;
  cache.attention_scale = model.attention_scale;
  cache.tsp_layer = model.shape.tsp_layer;
  cache.num_pages = static_cast<int32_t>(num_pages);
  cache.geometry = {.num_kv_heads = config.num_key_value_heads,
                    .group_size = config.group_size(),
                    .head_dim = config.head_dim,
                    .dtype = dtype};
  std::unique_ptr<PromptReader> reader(new PromptReader(model, max_tokens));
  HEADROOM_ASSIGN_OR_RETURN(
      reader->cache_, engine::KvCache::Create(cache, model.backend, model.policies, model.clock));
  return reader;
}

void PromptReader::Read(std::span<const int32_t> ids, ChunkObserver& observer) {
  const auto num_tokens = static_cast<int32_t>(ids.size());
  HEADROOM_CHECK(num_tokens >= 1 && num_tokens <= max_tokens_);
  const int32_t handle =
      cache_->Open({}, {.num_tokens = num_tokens, .content_end = num_tokens, .classes = nullptr});
  ObservedStore store(*cache_, observer);
  for (int32_t begin = 0; begin < num_tokens; begin += model_.max_rows) {
    models::ForwardBatch batch;
    RowSegment segment;
    segment.sequence = handle;
    segment.num_rows = std::min(model_.max_rows, num_tokens - begin);
    segment.layer_end = num_layers();
    segment.ends_phase = begin + segment.num_rows == num_tokens;
    for (int32_t i = begin; i < begin + segment.num_rows; ++i) {
      batch.positions.push_back(i);
      batch.token_ids.push_back(ids[static_cast<size_t>(i)]);
    }
    batch.segments.push_back(segment);
    model_.model.Forward(batch, store);
  }
  cache_->FinishPhase(handle, 0);
  cache_->Close(handle);
}

}  // namespace headroom::profiler
