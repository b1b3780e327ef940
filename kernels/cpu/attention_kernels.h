// The attention-side kernels of one instruction set, as a table of functions.
//
// Plain structs only: kernel units include this header (see simd_common.h). All functions are
// called under FTZ and DAZ, from any thread, and write nothing but the outputs named here.
#pragma once

#include <stdint.h>

namespace headroom::kernels {

// The numeric contract of attention, the same for prefill and decode: a row's slots are read in
// tiles of kTileSlots from slot 0, with one online softmax per chunk of kChunkSlots; the chunks'
// (m, l, o) are merged from the first to the last. Nothing else enters a row's result.
static constexpr int32_t kTileSlots = 64;
static constexpr int32_t kChunkSlots = 512;
// Rows that share one pass over K and V.
static constexpr int32_t kMaxBlockRows = 24;

// The pages of one KV head, as kernels see them.
struct KvPages {
  const uint8_t* arena = nullptr;  // page p begins at arena + p * page_bytes
  int64_t page_bytes = 0;
  const int32_t* pages = nullptr;
  int32_t num_pages = 0;
  int32_t head_dim = 0;
};

// Rows (a query head of a token each) of one KV head against chunks [chunk_begin, chunk_end).
struct AttentionBlock {
  KvPages kv;
  float scale = 0.0f;
  int32_t num_rows = 0;              // [1, kMaxBlockRows]
  const float* q[kMaxBlockRows];     // [head_dim] each
  float* out[kMaxBlockRows];         // [head_dim] each; unused when partials is set
  int32_t visible[kMaxBlockRows];    // slots each row sees, >= 1
  int32_t chunk_begin = 0;
  int32_t chunk_end = 0;
  // Null: the chunks are all there are; merge them and write out. Else the result of row r and
  // chunk c goes to partials + (c * num_rows + r) * PartialFloats: m, l, padding, o[padded_dim].
  float* partials = nullptr;
};

// A partial's o begins at this float, so that it is 64-byte aligned.
static constexpr int32_t kPartialHeader = 16;

// One query head of a window: out[column] = sum over rows in order of softmax(row)[column], or of
// the scores themselves.
struct WindowHead {
  KvPages kv;
  float scale = 0.0f;
  const float* q = nullptr;  // row r at q + r * q_stride, [head_dim]
  int64_t q_stride = 0;
  int32_t num_rows = 0;
  const int32_t* visible = nullptr;  // [num_rows], >= 1
  int32_t num_columns = 0;
  bool is_dot = false;
  float* out = nullptr;  // [num_columns]
};

// One row of RopeStore: rotates query and key heads in place, stores K and V.
struct RopeRow {
  float* qkv = nullptr;  // [num_query_heads + 2 * num_kv_heads, head_dim]
  const float* cos = nullptr;  // [head_dim / 2]
  const float* sin = nullptr;  // [head_dim / 2]
  bool interleaved = false;
  int32_t num_query_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  uint8_t* arena = nullptr;
  int64_t page_bytes = 0;
  const int64_t* dst_slots = nullptr;  // [num_kv_heads], -1: not stored
};

// Pools num_columns values along their axis, width odd.
struct PoolRow {
  const float* in = nullptr;   // [num_columns]
  float* out = nullptr;        // [num_columns], added to
  int32_t num_columns = 0;
  int32_t width = 1;
  bool is_max = true;
};

// All rows of one KV head of a ColumnScores call. A flat row is a query head of a token; flat row f
// is query head f % group_size of token f / group_size.
struct ColumnRows {
  KvPages kv;
  float scale = 0.0f;
  const float* q = nullptr;  // the group's first query head of token 0; the others beside it
  int64_t q_stride = 0;      // between tokens
  int32_t group_size = 0;
  int32_t num_tokens = 0;
  const int32_t* visible = nullptr;  // of token t at t * visible_stride, >= 0
  int64_t visible_stride = 0;
  // Largest score and sum of exp(score - largest) of each flat row.
  float* max = nullptr;  // [num_tokens * group_size]
  float* sum = nullptr;  // [num_tokens * group_size]
};

// Slots that one item of a ColumnScores call may cover, without buckets and with them.
static constexpr int32_t kMaxColumnSlots = 512;
static constexpr int32_t kMaxBucketSlots = 128;
static constexpr int32_t kMaxColumnBuckets = 16;

// Columns [slot_begin, slot_end) of the query heads [first_head, first_head + num_heads) of a group
// for all tokens, whose max and sum are known.
struct ColumnBlock {
  ColumnRows rows;
  int32_t first_head = 0;
  int32_t num_heads = 0;
  int32_t slot_begin = 0;  // a multiple of kTileSlots
  int32_t slot_end = 0;    // at most kMaxColumnSlots further on
  int32_t near_slots = 0;
  bool is_above_mean = false;
  // Set: bucket b of slot s at sums[b * bucket_stride + s], and no near sums.
  const int32_t* edges = nullptr;  // [num_edges], num_edges < kMaxColumnBuckets
  int32_t num_edges = 0;
  int64_t bucket_stride = 0;
  int64_t* sums = nullptr;       // of slot s at s, added to
  int64_t* near_sums = nullptr;  // the same; null: not wanted
};

// Flat rows [first_row, first_row + num_rows), num_rows <= kMaxBlockRows, of a ClassMasses call.
struct ClassBlock {
  ColumnRows rows;  // without max and sum
  int64_t first_row = 0;
  int32_t num_rows = 0;
  // 1 where a slot is of a class, else 0: of slot s, class c and query head h of the group at
  // h * head_stride + c * class_stride + s; up to a multiple of kTileSlots.
  const float* members = nullptr;
  int64_t head_stride = 0;
  int64_t class_stride = 0;
  int32_t num_classes = 0;  // [1, kMaxRowClasses]
  // Of class c of query head h of token t at t * token_stride + h * num_classes + c.
  int64_t* masses = nullptr;
  int64_t token_stride = 0;
};
static constexpr int32_t kMaxRowClasses = 8;

struct AttentionKernels {
  const char* isa = nullptr;  // "scalar", "avx2", "avx512"
  void (*attend_bf16)(const AttentionBlock& block) = nullptr;
  void (*attend_f32)(const AttentionBlock& block) = nullptr;
  void (*attend_int8)(const AttentionBlock& block) = nullptr;
  // Merges partials of every chunk that each row sees, first to last, and writes out.
  void (*merge_partials)(const AttentionBlock& block) = nullptr;
  void (*window_head_bf16)(const WindowHead& head) = nullptr;
  void (*window_head_f32)(const WindowHead& head) = nullptr;
  void (*window_head_int8)(const WindowHead& head) = nullptr;
  // Writes max and sum of flat rows [first_row, first_row + num_rows), num_rows <= kMaxBlockRows.
  void (*column_norms_bf16)(const ColumnRows& rows, int64_t first_row, int32_t num_rows) = nullptr;
  void (*column_norms_f32)(const ColumnRows& rows, int64_t first_row, int32_t num_rows) = nullptr;
  void (*column_norms_int8)(const ColumnRows& rows, int64_t first_row, int32_t num_rows) = nullptr;
  void (*column_sums_bf16)(const ColumnBlock& block) = nullptr;
  void (*column_sums_f32)(const ColumnBlock& block) = nullptr;
  void (*column_sums_int8)(const ColumnBlock& block) = nullptr;
  void (*class_masses_bf16)(const ClassBlock& block) = nullptr;
  void (*class_masses_f32)(const ClassBlock& block) = nullptr;
  void (*class_masses_int8)(const ClassBlock& block) = nullptr;
  void (*rope_row_bf16)(const RopeRow& row) = nullptr;
  void (*rope_row_f32)(const RopeRow& row) = nullptr;
  void (*rope_row_int8)(const RopeRow& row) = nullptr;
  void (*add_pooled)(const PoolRow& row) = nullptr;
};

// Call only where the machine has the instruction set; the scalar one runs anywhere.
AttentionKernels AttentionKernelsScalar();
AttentionKernels AttentionKernelsAvx2();
AttentionKernels AttentionKernelsAvx512();

// The same bits by the bf16 dot-product instruction or by two f32 FMAs. Intel's cores (Sapphire and
// Granite Rapids, measured) run the instruction at a quarter of the rate of FMA, so that two FMAs
// are twice as fast; AMD's (Zen 4, Zen 5) run both at one rate.
bool PreferBf16Dot();
AttentionKernels AttentionKernelsAvx512(bool use_bf16_dot);

}  // namespace headroom::kernels
