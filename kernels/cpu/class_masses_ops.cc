#include <algorithm>

#include "base/check.h"
#include "kernels/cpu/attention_ops.h"
#include "kernels/cpu/kv_layout.h"

namespace headroom::kernels {
namespace {

static_assert(kMaxRowClasses == kMaxClasses);

// Slots of a list of members: whole tiles.
int64_t PaddedSlots(const ClassMassesParams& params) {
  int32_t slots = 0;
  for (int32_t head = 0; head < params.arena.geometry.num_kv_heads; ++head) {
    slots = std::max(slots, params.heads[head].num_slots);
  }
  return (int64_t{slots} + kTileSlots - 1) / kTileSlots * kTileSlots;
}

// The classes of one list as 0 and 1, [num_classes, padded_slots].
void FillMembers(const uint8_t* classes, int32_t num_slots, int32_t num_classes,
                 int64_t padded_slots, float* members) {
  std::fill_n(members, num_classes * padded_slots, 0.0f);
  for (int32_t slot = 0; slot < num_slots; ++slot) {
    if (classes[slot] < num_classes) {
      members[classes[slot] * padded_slots + slot] = 1.0f;
    }
  }
}

}  // namespace

void AttentionOps::ClassMasses(const ClassMassesParams& params) {
  const KvGeometry& geometry = params.arena.geometry;
  const int64_t num_lists = static_cast<int64_t>(params.classes.size());
  const int64_t lists_per_head = num_lists / geometry.num_kv_heads;
  HEADROOM_CHECK(geometry.head_dim <= kMaxHeadDim && geometry.head_dim % 2 == 0);
  HEADROOM_CHECK(params.num_rows >= 0);
  HEADROOM_CHECK(params.num_classes >= 1 && params.num_classes <= kMaxClasses);
  HEADROOM_CHECK(num_lists == geometry.num_kv_heads ||
                 num_lists == int64_t{geometry.num_kv_heads} * geometry.group_size);
  const int64_t padded_slots = PaddedSlots(params);
  const int64_t list_floats = padded_slots * params.num_classes;
  if (scratch_.class_members.size() < static_cast<size_t>(num_lists * list_floats)) {
    scratch_.class_members.resize(static_cast<size_t>(num_lists * list_floats));
  }
  float* members = scratch_.class_members.data();
  pool_.ParallelFor(num_lists, [&](int64_t list, int) {
    FillMembers(params.classes[static_cast<size_t>(list)],
                params.heads[list / lists_per_head].num_slots, params.num_classes, padded_slots,
                members + list * list_floats);
  });
  const int64_t rows_per_head = int64_t{params.num_rows} * geometry.group_size;
  const int64_t num_blocks = (rows_per_head + kMaxBlockRows - 1) / kMaxBlockRows;
  const auto kernel = KernelOf(geometry.dtype, kernels_.class_masses_f32,
                               kernels_.class_masses_bf16, kernels_.class_masses_int8);
  // Later rows see more: long items first.
  pool_.ParallelFor(num_blocks * geometry.num_kv_heads, [&](int64_t index, int) {
    const int64_t kv_head = index % geometry.num_kv_heads;
    const KvHeadView& view = params.heads[kv_head];
    ClassBlock block;
    block.rows.kv = {.arena = static_cast<const uint8_t*>(params.arena.base),
                     .page_bytes = static_cast<int64_t>(params.arena.page_bytes),
                     .pages = view.pages,
                     .num_pages = (view.num_slots + kPageSize - 1) / kPageSize,
                     .head_dim = geometry.head_dim};
    block.rows.scale = params.scale;
    block.rows.q = params.queries + kv_head * geometry.group_size * geometry.head_dim;
    block.rows.q_stride = params.query_stride;
    block.rows.group_size = geometry.group_size;
    block.rows.num_tokens = params.num_rows;
    block.rows.visible = params.visible + kv_head;
    block.rows.visible_stride = geometry.num_kv_heads;
    block.first_row = (num_blocks - 1 - index / geometry.num_kv_heads) * kMaxBlockRows;
    block.num_rows =
        static_cast<int32_t>(std::min<int64_t>(kMaxBlockRows, rows_per_head - block.first_row));
    block.members = members + kv_head * lists_per_head * list_floats;
    block.head_stride = lists_per_head == 1 ? 0 : list_floats;
    block.class_stride = padded_slots;
    block.num_classes = params.num_classes;
    block.masses = params.masses + kv_head * geometry.group_size * params.num_classes;
    block.token_stride = int64_t{geometry.num_kv_heads} * geometry.group_size * params.num_classes;
    kernel(block);
  });
}

}  // namespace headroom::kernels
