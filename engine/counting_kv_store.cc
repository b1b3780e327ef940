#include "engine/counting_kv_store.h"

namespace headroom::engine {

const kernels::KvArena& CountingKvStore::arena() const { return store_.arena(); }

void CountingKvStore::Append(const models::RowSegment& segment, int32_t layer,
                             const int32_t* positions, int64_t* dst_slots) {
  store_.Append(segment, layer, positions, dst_slots);
}

const kernels::KvHeadView* CountingKvStore::View(const models::RowSegment& segment, int32_t layer,
                                                 const int32_t* positions, int32_t* visible) {
  const kernels::KvHeadView* heads = store_.View(segment, layer, positions, visible);
  const int64_t count =
      static_cast<int64_t>(segment.num_rows) * store_.arena().geometry.num_kv_heads;
  for (int64_t i = 0; i < count; ++i) {
    attended_slots_ += visible[i];
  }
  return heads;
}

void CountingKvStore::CaptureQueries(const models::RowSegment& segment, int32_t layer,
                                     const int32_t* positions, const float* queries,
                                     int64_t stride) {
  store_.CaptureQueries(segment, layer, positions, queries, stride);
}

void CountingKvStore::StashRows(const models::RowSegment& segment, const int32_t* positions,
                                const float* rows, int64_t stride) {
  store_.StashRows(segment, positions, rows, stride);
}

void CountingKvStore::LoadStash(const models::RowSegment& segment, const int32_t* positions,
                                float* rows, int64_t stride) {
  store_.LoadStash(segment, positions, rows, stride);
}

void CountingKvStore::FinishLayer(const models::RowSegment& segment, int32_t layer) {
  store_.FinishLayer(segment, layer);
}

}  // namespace headroom::engine
