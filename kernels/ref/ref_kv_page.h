// The page layout of the reference backend: K [16][head_dim], then V [16][head_dim]. In int8 the
// f32 scale of each row of K and V follows its elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/ops.h"

namespace headroom::kernels::ref {

size_t PageBytes(const KvGeometry& geometry);

// Writes k and v [head_dim] to a slot, rounded to the cache's dtype.
void StoreSlot(const KvArena& arena, int64_t slot, const float* k, const float* v);

// Reads a slot as f32.
void LoadSlot(const KvArena& arena, int64_t slot, float* k, float* v);

// Copies a slot byte for byte.
void CopySlot(const KvArena& arena, int64_t src_slot, int64_t dst_slot);

// The first `num_slots` slots of a head, gathered: k and v [num_slots, head_dim].
void GatherHead(const KvArena& arena, const KvHeadView& head, int32_t num_slots,
                std::vector<float>* k, std::vector<float>* v);

}  // namespace headroom::kernels::ref
