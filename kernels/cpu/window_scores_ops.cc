#include <algorithm>

#include "base/check.h"
#include "kernels/cpu/attention_ops.h"
#include "kernels/cpu/kv_layout.h"

namespace headroom::kernels {
namespace {

// Pools each query head's sums, then adds the group up in head order.
void CombineGroup(const WindowScoresParams& params, const AttentionKernels& kernels,
                  const float* window_sums, int64_t kv_head) {
  const int32_t group_size = params.arena.geometry.group_size;
  const int64_t num_columns = params.num_columns;
  float* pooled = params.pooled + kv_head * num_columns;
  float* raw = params.raw + kv_head * num_columns;
  std::fill_n(pooled, num_columns, 0.0f);
  std::fill_n(raw, num_columns, 0.0f);
  for (int32_t i = 0; i < group_size; ++i) {
    const float* sums = window_sums + (kv_head * group_size + i) * num_columns;
    kernels.add_pooled({.in = sums,
                        .out = pooled,
                        .num_columns = params.num_columns,
                        .width = params.pool_width,
                        .is_max = params.pool == PoolKind::kMax});
    for (int64_t column = 0; column < num_columns; ++column) {
      raw[column] += sums[column];
    }
  }
}

}  // namespace

void AttentionOps::WindowScores(const WindowScoresParams& params) {
  const KvGeometry& geometry = params.arena.geometry;
  HEADROOM_CHECK(geometry.head_dim <= kMaxHeadDim && geometry.head_dim % 2 == 0);
  HEADROOM_CHECK(params.pool_width % 2 == 1 && params.num_columns >= 1);
  const int64_t num_query_heads = int64_t{geometry.num_kv_heads} * geometry.group_size;
  const size_t num_sums = static_cast<size_t>(num_query_heads * params.num_columns);
  if (scratch_.window_sums.size() < num_sums) {
    scratch_.window_sums.resize(num_sums);
  }
  float* window_sums = scratch_.window_sums.data();
  pool_.ParallelFor(num_query_heads, [&](int64_t query_head, int) {
    const KvHeadView& view = params.heads[query_head / geometry.group_size];
    WindowHead head;
    head.kv = {.arena = static_cast<const uint8_t*>(params.arena.base),
               .page_bytes = static_cast<int64_t>(params.arena.page_bytes),
               .pages = view.pages,
               .num_pages = (view.num_slots + kPageSize - 1) / kPageSize,
               .head_dim = geometry.head_dim};
    head.scale = params.scale;
    head.q = params.queries + query_head * geometry.head_dim;
    head.q_stride = params.query_stride;
    head.num_rows = params.num_window_rows;
    head.visible = params.visible;
    head.num_columns = params.num_columns;
    head.is_dot = params.kind == WindowScoreKind::kDot;
    head.out = window_sums + query_head * params.num_columns;
    KernelOf(geometry.dtype, kernels_.window_head_f32, kernels_.window_head_bf16,
             kernels_.window_head_int8)(head);
  });
  pool_.ParallelFor(geometry.num_kv_heads, [&](int64_t kv_head, int) {
    CombineGroup(params, kernels_, window_sums, kv_head);
  });
}

}  // namespace headroom::kernels
