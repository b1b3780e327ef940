// The attention-side ops of the cpu backend: drivers that split an op into items of work, run them
// on the pool and call one instruction set's kernels. Contracts of the ops: kernels/ops.h.
//
// Threads: one caller at a time. Nothing is allocated once AttentionScratch::Reserve has seen the
// largest call; a larger one grows the scratch.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/cpu/attention_kernels.h"
#include "kernels/ops.h"

namespace headroom::kernels {

// One item of work of an attention call: a block of rows of one KV head, over all the slots they
// see or over one chunk of them.
struct AttentionItem {
  int64_t cost = 0;
  int32_t segment = 0;
  int32_t kv_head = 0;
  int64_t first_row = 0;  // in the segment, counted token by token, query heads of the group inside
  int32_t num_rows = 0;
  int32_t max_visible = 0;
  int32_t chunk = -1;   // -1: all of them
  int32_t split = -1;   // index into splits, for items of one chunk
  int32_t order = 0;    // where it was planned; breaks ties
};

// A block whose chunks are separate items. Whoever finishes last merges.
struct AttentionSplit {
  int64_t first_float = 0;  // of its partials
  std::atomic<int32_t> num_open{0};
};

// Working memory of the ops below. Not thread-safe.
struct AttentionScratch {
  void Reserve(const WorkspaceLimits& limits, int num_threads);

  std::vector<AttentionItem> items;
  std::unique_ptr<AttentionSplit[]> splits;  // [num_splits]
  int32_t num_splits = 0;
  std::vector<float> partials;
  std::vector<float> window_sums;   // [num_query_heads, num_columns]
  std::vector<float> column_norms;  // [2, num_kv_heads, num_rows, group_size]
  std::vector<float> class_members;  // [class lists, classes, slots of whole tiles]
  std::vector<uint64_t> top_k_keys;  // [2, num_scores]
};

// The kernel of the cache's dtype.
template <typename Kernel>
Kernel KernelOf(KvDType dtype, Kernel f32, Kernel bf16, Kernel int8) {
  return dtype == KvDType::kF32 ? f32 : dtype == KvDType::kBF16 ? bf16 : int8;
}

// Runs the ops with one instruction set's kernels on a pool that the caller owns.
class AttentionOps {
 public:
  // `pool` outlives this object.
  AttentionOps(const AttentionKernels& kernels, ThreadPool* pool)
      : kernels_(kernels), pool_(*pool) {}

  void Reserve(const WorkspaceLimits& limits) { scratch_.Reserve(limits, pool_.num_threads()); }

  void RopeStore(const RopeStoreParams& params);
  void Attention(const AttentionParams& params);
  void WindowScores(const WindowScoresParams& params);
  void ColumnScores(const ColumnScoresParams& params);
  void ClassMasses(const ClassMassesParams& params);
  void SelectTopK(const SelectTopKParams& params);
  void MoveKv(const MoveKvParams& params);

  // Layout of a page: kv_layout.h.
  static size_t KvPageBytes(const KvGeometry& geometry);
  static void WriteKvSlot(const KvArena& arena, int64_t slot, const float* k, const float* v);
  static void ReadKvSlot(const KvArena& arena, int64_t slot, float* k, float* v);

 private:
  const AttentionKernels kernels_;
  ThreadPool& pool_;
  AttentionScratch scratch_;
};

}  // namespace headroom::kernels
