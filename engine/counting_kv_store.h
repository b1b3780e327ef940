// A KvStore that passes every call on and counts the (row, slot) pairs that attention reads: the
// work counter behind the proof that the two budgets are decoupled. Engine thread only.
#pragma once

#include <cstdint>

#include "models/kv_store.h"

namespace headroom::engine {

class CountingKvStore final : public models::KvStore {
 public:
  explicit CountingKvStore(models::KvStore& store) : store_(store) {}

  // Summed over layers and KV heads, since the store was made.
  int64_t attended_slots() const { return attended_slots_; }

  const kernels::KvArena& arena() const override;
  void Append(const models::RowSegment& segment, int32_t layer, const int32_t* positions,
              int64_t* dst_slots) override;
  const kernels::KvHeadView* View(const models::RowSegment& segment, int32_t layer,
                                  const int32_t* positions, int32_t* visible) override;
  void CaptureQueries(const models::RowSegment& segment, int32_t layer, const int32_t* positions,
                      const float* queries, int64_t stride) override;
  void StashRows(const models::RowSegment& segment, const int32_t* positions, const float* rows,
                 int64_t stride) override;
  void LoadStash(const models::RowSegment& segment, const int32_t* positions, float* rows,
                 int64_t stride) override;
  void FinishLayer(const models::RowSegment& segment, int32_t layer) override;

 private:
  models::KvStore& store_;
  int64_t attended_slots_ = 0;
};

}  // namespace headroom::engine
