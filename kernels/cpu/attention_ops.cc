#include "kernels/cpu/attention_ops.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/cpu/kv_layout.h"

namespace headroom::kernels {
namespace {

static_assert(kKvPageTokens == kPageSize);
static_assert(kChunkSlots % kTileSlots == 0 && kTileSlots % kKvPageTokens == 0);

// Items that each thread should find, so that the last ones to finish are short.
constexpr int kItemsPerThread = 4;
// Above this, blocks are no longer split over threads: slower, the same result.
constexpr int64_t kMaxPartialFloats = int64_t{16} << 20;

int32_t NumChunks(int32_t num_slots) { return (num_slots + kChunkSlots - 1) / kChunkSlots; }

int64_t PartialFloats(int32_t head_dim) { return kPartialHeader + PaddedHeadDim(head_dim); }

int64_t SplitFloats(int32_t num_rows, int32_t max_visible, int32_t head_dim) {
  return int64_t{num_rows} * NumChunks(max_visible) * PartialFloats(head_dim);
}

// Fills scratch.items with one item per block of rows and KV head; returns their total cost.
int64_t PlanBlocks(const AttentionParams& params, AttentionScratch& scratch) {
  const KvGeometry& geometry = params.arena.geometry;
  int64_t total_cost = 0;
  scratch.items.clear();
  for (size_t s = 0; s < params.segments.size(); ++s) {
    const AttentionSegment& segment = params.segments[s];
    const int64_t segment_rows = segment.num_rows * geometry.group_size;
    for (int64_t first = 0; first < segment_rows; first += kMaxBlockRows) {
      const int64_t end = std::min<int64_t>(segment_rows, first + kMaxBlockRows);
      const int64_t first_token = segment.row_begin + first / geometry.group_size;
      const int64_t last_token = segment.row_begin + (end - 1) / geometry.group_size;
      for (int32_t head = 0; head < geometry.num_kv_heads; ++head) {
        AttentionItem item;
        item.segment = static_cast<int32_t>(s);
        item.kv_head = head;
        item.first_row = first;
        item.num_rows = static_cast<int32_t>(end - first);
        for (int64_t token = first_token; token <= last_token; ++token) {
          const int32_t visible = params.visible[token * geometry.num_kv_heads + head];
          HEADROOM_DCHECK(visible >= 1 && visible <= segment.heads[head].num_slots);
          item.max_visible = std::max(item.max_visible, visible);
        }
        item.cost = int64_t{item.num_rows} * item.max_visible;
        item.order = static_cast<int32_t>(scratch.items.size());
        total_cost += item.cost;
        scratch.items.push_back(item);
      }
    }
  }
  return total_cost;
}

void EnsureSplits(int32_t num_splits, AttentionScratch& scratch) {
  if (scratch.num_splits < num_splits) {
    scratch.splits = std::make_unique<AttentionSplit[]>(static_cast<size_t>(num_splits));
    scratch.num_splits = num_splits;
  }
}

// Replaces blocks that are too large a share of the call by one item per chunk.
void SplitLongBlocks(int64_t total_cost, int num_threads, int32_t head_dim,
                     AttentionScratch& scratch) {
  if (num_threads == 1) {
    return;
  }
  const int64_t max_cost = total_cost / (int64_t{kItemsPerThread} * num_threads);
  EnsureSplits(kItemsPerThread * num_threads, scratch);
  int32_t num_splits = 0;
  int64_t num_floats = 0;
  const size_t num_blocks = scratch.items.size();
  for (size_t i = 0; i < num_blocks; ++i) {
    AttentionItem item = scratch.items[i];
    const int64_t floats = SplitFloats(item.num_rows, item.max_visible, head_dim);
    if (item.cost <= max_cost || item.max_visible <= kChunkSlots ||
        num_splits == scratch.num_splits || num_floats + floats > kMaxPartialFloats) {
      continue;
    }
    const int32_t num_chunks = NumChunks(item.max_visible);
    item.split = num_splits++;
    scratch.splits[item.split].first_float = num_floats;
    scratch.splits[item.split].num_open.store(num_chunks, std::memory_order_relaxed);
    num_floats += floats;
    item.cost = int64_t{item.num_rows} * kChunkSlots;
    for (item.chunk = 0; item.chunk < num_chunks; ++item.chunk) {
      if (item.chunk == 0) {
        scratch.items[i] = item;
      } else {
        scratch.items.push_back(item);
      }
    }
  }
  if (scratch.partials.size() < static_cast<size_t>(num_floats)) {
    scratch.partials.resize(static_cast<size_t>(num_floats));
  }
}

void FillBlock(const AttentionParams& params, const AttentionItem& item, AttentionBlock* block) {
  const KvGeometry& geometry = params.arena.geometry;
  const AttentionSegment& segment = params.segments[static_cast<size_t>(item.segment)];
  const KvHeadView& head = segment.heads[item.kv_head];
  block->kv = {.arena = static_cast<const uint8_t*>(params.arena.base),
               .page_bytes = static_cast<int64_t>(params.arena.page_bytes),
               .pages = head.pages,
               .num_pages = (head.num_slots + kPageSize - 1) / kPageSize,
               .head_dim = geometry.head_dim};
  block->scale = params.scale;
  block->num_rows = item.num_rows;
  for (int32_t r = 0; r < item.num_rows; ++r) {
    const int64_t flat = item.first_row + r;
    const int64_t token = segment.row_begin + flat / geometry.group_size;
    const int64_t query_head =
        int64_t{item.kv_head} * geometry.group_size + flat % geometry.group_size;
    block->q[r] = params.q + token * params.q_stride + query_head * geometry.head_dim;
    block->out[r] = params.out + token * params.out_stride + query_head * geometry.head_dim;
    block->visible[r] = params.visible[token * geometry.num_kv_heads + item.kv_head];
  }
  block->chunk_begin = 0;
  block->chunk_end = NumChunks(item.max_visible);
}

void RunItem(const AttentionParams& params, const AttentionKernels& kernels,
             const AttentionItem& item, AttentionScratch& scratch) {
  AttentionBlock block;
  FillBlock(params, item, &block);
  const auto attend = KernelOf(params.arena.geometry.dtype, kernels.attend_f32,
                               kernels.attend_bf16, kernels.attend_int8);
  if (item.split < 0) {
    attend(block);
    return;
  }
  AttentionSplit& split = scratch.splits[static_cast<size_t>(item.split)];
  block.partials = scratch.partials.data() + split.first_float;
  block.chunk_begin = item.chunk;
  block.chunk_end = item.chunk + 1;
  attend(block);
  // acq_rel: the last one sees what the others wrote.
  if (split.num_open.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    kernels.merge_partials(block);
  }
}

}  // namespace

void AttentionScratch::Reserve(const WorkspaceLimits& limits, int num_threads) {
  const int64_t query_heads = std::max<int32_t>(limits.num_query_heads, 1);
  const int64_t max_rows = std::max<int64_t>(limits.max_rows, 1);
  const int32_t max_slots =
      static_cast<int32_t>(std::clamp<int64_t>(limits.max_slots, 1, INT32_MAX / 2));
  const int32_t max_splits = kItemsPerThread * num_threads;
  // A decode step has a block per row and KV head, of which there are at most query_heads.
  items.reserve(static_cast<size_t>(max_rows * query_heads));
  EnsureSplits(max_splits, *this);
  const int64_t split_floats =
      max_splits * SplitFloats(kMaxBlockRows, max_slots, std::max(limits.head_dim, 1));
  partials.reserve(static_cast<size_t>(std::min(split_floats, kMaxPartialFloats)));
  window_sums.reserve(static_cast<size_t>(query_heads * max_slots));
  column_norms.reserve(static_cast<size_t>(2 * max_rows * query_heads));
  top_k_keys.reserve(2 * static_cast<size_t>(max_slots));
}

void AttentionOps::Attention(const AttentionParams& params) {
  const int32_t head_dim = params.arena.geometry.head_dim;
  HEADROOM_CHECK(head_dim >= 2 && head_dim <= kMaxHeadDim && head_dim % 2 == 0);
  const int64_t total_cost = PlanBlocks(params, scratch_);
  SplitLongBlocks(total_cost, pool_.num_threads(), head_dim, scratch_);
  // Long items first: the short ones fill the gaps at the end.
  std::sort(scratch_.items.begin(), scratch_.items.end(),
            [](const AttentionItem& a, const AttentionItem& b) {
              return a.cost != b.cost ? a.cost > b.cost : a.order < b.order;
            });
  pool_.ParallelFor(static_cast<int64_t>(scratch_.items.size()), [&](int64_t index, int) {
    RunItem(params, kernels_, scratch_.items[static_cast<size_t>(index)], scratch_);
  });
}

}  // namespace headroom::kernels
