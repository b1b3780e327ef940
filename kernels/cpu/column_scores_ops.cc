#include <algorithm>

#include "base/check.h"
#include "kernels/cpu/attention_ops.h"
#include "kernels/cpu/kv_layout.h"

namespace headroom::kernels {
namespace {

static_assert(kMaxColumnSlots % kTileSlots == 0 && kMaxBucketSlots % kTileSlots == 0);
static_assert(kMaxColumnBuckets == kMaxBuckets);

// Items that each thread should find, so that the last ones to finish are short.
constexpr int64_t kItemsPerThread = 4;

// The call as its items see it.
struct ColumnCall {
  const ColumnScoresParams& params;
  const AttentionKernels& kernels;
  float* norms;  // [2, num_kv_heads, num_rows, group_size]

  const KvGeometry& geometry() const { return params.arena.geometry; }
  int64_t rows_per_head() const { return int64_t{params.num_rows} * geometry().group_size; }
  // Entries of `sums` that a KV head owns, and the query heads that meet in each.
  int32_t sums_per_head() const { return params.per_query_head ? geometry().group_size : 1; }
  int32_t heads_per_sum() const { return params.per_query_head ? 1 : geometry().group_size; }
};

ColumnRows RowsOf(const ColumnCall& call, int64_t kv_head) {
  const ColumnScoresParams& params = call.params;
  const KvGeometry& geometry = call.geometry();
  const KvHeadView& view = params.heads[kv_head];
  ColumnRows rows;
  rows.kv = {.arena = static_cast<const uint8_t*>(params.arena.base),
             .page_bytes = static_cast<int64_t>(params.arena.page_bytes),
             .pages = view.pages,
             .num_pages = (view.num_slots + kPageSize - 1) / kPageSize,
             .head_dim = geometry.head_dim};
  rows.scale = params.scale;
  rows.q = params.queries + kv_head * geometry.group_size * geometry.head_dim;
  rows.q_stride = params.query_stride;
  rows.group_size = geometry.group_size;
  rows.num_tokens = params.num_rows;
  rows.visible = params.visible + kv_head;
  rows.visible_stride = geometry.num_kv_heads;
  rows.max = call.norms + kv_head * call.rows_per_head();
  rows.sum = rows.max + geometry.num_kv_heads * call.rows_per_head();
  return rows;
}

bool IsScored(const ColumnCall& call, int64_t kv_head) {
  const auto sums = call.params.sums.subspan(static_cast<size_t>(kv_head * call.sums_per_head()),
                                             static_cast<size_t>(call.sums_per_head()));
  return std::any_of(sums.begin(), sums.end(), [](const int64_t* sum) { return sum != nullptr; });
}

void NormalizeBlock(const ColumnCall& call, int64_t kv_head, int64_t block) {
  if (!IsScored(call, kv_head)) {
    return;
  }
  const int64_t first = block * kMaxBlockRows;
  const auto num_rows =
      static_cast<int32_t>(std::min<int64_t>(kMaxBlockRows, call.rows_per_head() - first));
  const auto column_norms =
      KernelOf(call.geometry().dtype, call.kernels.column_norms_f32, call.kernels.column_norms_bf16,
               call.kernels.column_norms_int8);
  column_norms(RowsOf(call, kv_head), first, num_rows);
}

void AddBlock(const ColumnCall& call, int64_t target, int32_t first_slot, int32_t num_slots) {
  const ColumnScoresParams& params = call.params;
  const int64_t kv_head = target / call.sums_per_head();
  const int32_t head_slots = params.heads[kv_head].num_slots;
  int64_t* sums = params.sums[static_cast<size_t>(target)];
  if (sums == nullptr || first_slot >= head_slots) {
    return;
  }
  ColumnBlock block;
  block.rows = RowsOf(call, kv_head);
  block.first_head = static_cast<int32_t>(target % call.sums_per_head());
  block.num_heads = call.heads_per_sum();
  block.slot_begin = first_slot;
  block.slot_end = std::min(head_slots, first_slot + num_slots);
  block.near_slots = params.near_slots;
  block.is_above_mean = params.kind == ColumnKind::kAboveMean;
  block.edges = params.bucket_edges.data();
  block.num_edges = static_cast<int32_t>(params.bucket_edges.size());
  block.bucket_stride = params.bucket_stride;
  block.sums = sums;
  block.near_sums =
      params.near_sums.empty() ? nullptr : params.near_sums[static_cast<size_t>(target)];
  KernelOf(call.geometry().dtype, call.kernels.column_sums_f32, call.kernels.column_sums_bf16,
           call.kernels.column_sums_int8)(block);
}

// Slots per item: many share a row's query, few keep every thread busy.
int32_t BlockSlots(int64_t num_sums, int32_t most, int32_t max_slots, int num_threads) {
  int32_t slots = most;
  while (num_threads > 1 && slots > kTileSlots &&
         num_sums * ((max_slots + slots - 1) / slots) < kItemsPerThread * num_threads) {
    slots /= 2;
  }
  return slots;
}

void CheckParams(const ColumnScoresParams& params, size_t num_sums) {
  const KvGeometry& geometry = params.arena.geometry;
  HEADROOM_CHECK(geometry.head_dim <= kMaxHeadDim && geometry.head_dim % 2 == 0);
  HEADROOM_CHECK(params.num_rows >= 0 && params.near_slots >= 0);
  HEADROOM_CHECK(params.sums.size() == num_sums);
  HEADROOM_CHECK(params.near_sums.empty() || params.near_sums.size() == num_sums);
  HEADROOM_CHECK(params.bucket_edges.size() < static_cast<size_t>(kMaxBuckets));
  HEADROOM_CHECK(params.bucket_edges.empty() ||
                 (params.near_sums.empty() && params.kind == ColumnKind::kProbability));
  for (size_t i = 0; i < params.bucket_edges.size(); ++i) {
    HEADROOM_CHECK(params.bucket_edges[i] > (i == 0 ? 0 : params.bucket_edges[i - 1]));
  }
  for (int64_t i = 0; i < int64_t{params.num_rows} * geometry.num_kv_heads; ++i) {
    HEADROOM_DCHECK(params.visible[i] >= 0 &&
                    params.visible[i] <= params.heads[i % geometry.num_kv_heads].num_slots);
  }
}

}  // namespace

void AttentionOps::ColumnScores(const ColumnScoresParams& params) {
  const int64_t num_kv_heads = params.arena.geometry.num_kv_heads;
  ColumnCall call = {params, kernels_, nullptr};
  const int64_t num_sums = num_kv_heads * call.sums_per_head();
  CheckParams(params, static_cast<size_t>(num_sums));
  const auto num_norms = static_cast<size_t>(2 * num_kv_heads * call.rows_per_head());
  if (scratch_.column_norms.size() < num_norms) {
    scratch_.column_norms.resize(num_norms);
  }
  call.norms = scratch_.column_norms.data();
  // Later rows see more, earlier columns are seen by more rows: long items first.
  const int64_t num_row_blocks = (call.rows_per_head() + kMaxBlockRows - 1) / kMaxBlockRows;
  pool_.ParallelFor(num_row_blocks * num_kv_heads, [&](int64_t index, int) {
    NormalizeBlock(call, index % num_kv_heads, num_row_blocks - 1 - index / num_kv_heads);
  });
  int32_t max_slots = 0;
  for (int64_t head = 0; head < num_kv_heads && params.num_rows > 0; ++head) {
    max_slots = std::max(max_slots, params.heads[head].num_slots);
  }
  const int32_t most = params.bucket_edges.empty() ? kMaxColumnSlots : kMaxBucketSlots;
  const int32_t block_slots = BlockSlots(num_sums, most, max_slots, pool_.num_threads());
  const int64_t num_blocks = (int64_t{max_slots} + block_slots - 1) / block_slots;
  pool_.ParallelFor(num_blocks * num_sums, [&](int64_t index, int) {
    AddBlock(call, index % num_sums, static_cast<int32_t>(index / num_sums) * block_slots,
             block_slots);
  });
}

}  // namespace headroom::kernels
