// Where a forward pass puts keys and values and finds them again. Implemented in engine/kv.
//
// The forward pass never knows a policy, a budget or a page. Calls come from the engine thread, for
// each segment in layer order: Append, CaptureQueries, View, FinishLayer.
#pragma once

#include <cstdint>

#include "kernels/ops.h"
#include "models/forward_batch.h"

namespace headroom::models {

class KvStore {
 public:
  virtual ~KvStore() = default;

  virtual const kernels::KvArena& arena() const = 0;

  // Adds one slot per row to every KV head of (segment.sequence, layer), at the rows' logical
  // positions, and writes where they lie to dst_slots [num_rows, num_kv_heads]. Cannot fail: the
  // engine planned only what is reserved.
  virtual void Append(const RowSegment& segment, int32_t layer, const int32_t* positions,
                      int64_t* dst_slots) = 0;

  // The heads of (segment.sequence, layer) [num_kv_heads] and, for each row and KV head, how many
  // slots the row sees: those at positions up to its own [num_rows, num_kv_heads]. Valid until
  // the next call for this sequence and layer.
  virtual const kernels::KvHeadView* View(const RowSegment& segment, int32_t layer,
                                          const int32_t* positions, int32_t* visible) = 0;

  // Offers the rows' rotated queries [num_rows, stride]; the store copies those that the policy's
  // window needs.
  virtual void CaptureQueries(const RowSegment& segment, int32_t layer, const int32_t* positions,
                              const float* queries, int64_t stride) = 0;

  // Keeps the rows that enter layer segment.layer_end [num_rows, hidden].
  virtual void StashRows(const RowSegment& segment, const int32_t* positions, const float* rows,
                         int64_t stride) = 0;
  // Gives back the kept rows at these positions.
  virtual void LoadStash(const RowSegment& segment, const int32_t* positions, float* rows,
                         int64_t stride) = 0;

  // After the attention of `layer` (for kv_tail's extra layer: after its K and V are stored), when
  // segment.ends_phase: the place where a layer is scored, planned and compacted.
  virtual void FinishLayer(const RowSegment& segment, int32_t layer) = 0;
};

}  // namespace headroom::models
