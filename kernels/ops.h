// The op set: everything that touches numbers, behind one interface.
//
// About a dozen coarse, typed ops with plain parameter structs. Three implementations: `ref`
// (double accumulators, the oracle), `cpu`, later `cuda`. An op knows no model, request or policy,
// allocates nothing, and writes only the outputs that its struct names. Pointers marked "backend
// memory" come from Backend::Allocate; lists (pages, counts, slots) are host memory.
//
// Invariance is a contract: a row's result depends on that row's inputs alone, bit for bit: not on
// the other rows of the call, the number of threads, where pages lie, or (cpu) the ISA.
//
// Threads: one caller at a time (the engine thread). Ops use the backend's own pool inside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "base/tensor_view.h"

namespace headroom::kernels {

// Tokens a KV page holds.
inline constexpr int32_t kPageSize = 16;

// Backend memory, 64-byte aligned, zeroed when allocated.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual void* data() = 0;
  virtual size_t num_bytes() const = 0;
  float* floats() { return static_cast<float*>(data()); }
};

// A weight matrix [rows = output features, cols = input features] in the backend's own layout.
class PackedWeight {
 public:
  virtual ~PackedWeight() = default;
  virtual int64_t rows() const = 0;
  virtual int64_t cols() const = 0;
  virtual size_t num_bytes() const = 0;
};

// How a KV page holds numbers. kInt8: K, and likewise V, of a slot are int8 with one f32 scale per
// token and head, kept in the page: scale = max|x| / 127 in f32, element = x / scale rounded to the
// nearest integer, ties to even, in [-127, 127]; its value is element * scale. A vector whose scale
// would be below the least normal f32 is held as zeros with scale 0; one that holds an
// infinity or a NaN has a NaN scale, so that it cannot pass for a number.
enum class KvDType : uint8_t { kF32, kBF16, kInt8 };

// Shape of the KV cache of one model. A page holds K and V of kPageSize tokens of one KV head.
struct KvGeometry {
  int32_t num_kv_heads = 0;
  int32_t group_size = 0;  // query heads per KV head
  int32_t head_dim = 0;    // even
  KvDType dtype = KvDType::kF32;
};

// Bytes of one element of K or V.
constexpr int32_t KvElementBytes(KvDType dtype) {
  return dtype == KvDType::kF32 ? 4 : dtype == KvDType::kBF16 ? 2 : 1;
}
// Bytes of an entry, K and V of one token of one KV head with their scales: what receipts count.
// Pages may be larger, by a backend's padding.
constexpr int64_t KvEntryBytes(KvDType dtype, int32_t head_dim) {
  const int64_t scale_bytes = dtype == KvDType::kInt8 ? 2 * int64_t{sizeof(float)} : 0;
  return int64_t{2} * head_dim * KvElementBytes(dtype) + scale_bytes;
}

// The page arena: page p begins at base + p * page_bytes. A slot is page * kPageSize + offset.
struct KvArena {
  void* base = nullptr;  // backend memory, [num_pages, page_bytes]
  size_t page_bytes = 0;
  KvGeometry geometry;
};

// The pages of one (sequence, layer, KV head).
struct KvHeadView {
  const int32_t* pages = nullptr;  // [ceil(num_slots / kPageSize)]
  int32_t num_slots = 0;
};

// out[rows, cols of the weight] = row ids[r] of the weight, as f32.
struct EmbedRowsParams {
  const PackedWeight* weight = nullptr;  // [vocab, hidden]
  std::span<const int32_t> ids;          // each in [0, vocab)
  float* out = nullptr;                  // [ids.size(), hidden], backend memory
};

enum class LinearEpilogue : uint8_t {
  kStore,    // out = x W^T
  kAdd,      // out += x W^T
  kSiluMul,  // weight made by PackGateUp: out = silu(x Wg^T) * (x Wu^T)
};

// x is normalised first when norm_weight is set: x * rsqrt(mean(x^2) + eps) * norm_weight.
struct LinearParams {
  const float* x = nullptr;  // [num_rows, cols], backend memory
  int64_t x_stride = 0;      // elements between rows
  int64_t num_rows = 0;      // >= 0
  const float* norm_weight = nullptr;  // [cols], backend memory; null: no norm
  float norm_eps = 0.0f;
  const PackedWeight* weight = nullptr;
  float* out = nullptr;  // [num_rows, rows of the weight (kSiluMul: half of them)]; not x
  int64_t out_stride = 0;
  LinearEpilogue epilogue = LinearEpilogue::kStore;
};

// Rotates the query and key part of each row in place and stores keys and values in pages.
// Row layout: [num_kv_heads * group_size query heads | num_kv_heads key heads | value heads].
struct RopeStoreParams {
  float* qkv = nullptr;  // [num_rows, qkv_stride], backend memory
  int64_t qkv_stride = 0;
  int64_t num_rows = 0;
  // cos and sin of each row and pair, [num_rows, head_dim / 2] each, host memory.
  const float* cos = nullptr;
  const float* sin = nullptr;
  bool interleaved = false;  // pairs (2i, 2i + 1); else (i, i + head_dim / 2)
  KvArena arena;
  const int64_t* dst_slots = nullptr;  // [num_rows, num_kv_heads]; -1: that head is not stored
};

// One sequence's rows of an attention call.
struct AttentionSegment {
  int64_t row_begin = 0;
  int64_t num_rows = 0;
  const KvHeadView* heads = nullptr;  // [num_kv_heads]
};

// out = softmax(scale * q K^T) V over the first `visible` slots of each row's KV head. The order of
// the sum is the order of slots, whatever the rows are called with.
struct AttentionParams {
  const float* q = nullptr;  // [num_rows, q_stride], rotated; query head h at h * head_dim
  int64_t q_stride = 0;
  float* out = nullptr;  // [num_rows, out_stride], heads as in q
  int64_t out_stride = 0;
  float scale = 0.0f;
  KvArena arena;
  std::span<const AttentionSegment> segments;
  const int32_t* visible = nullptr;  // [all rows, num_kv_heads], each in [1, num_slots]
};

enum class PoolKind : uint8_t { kMax, kAvg };

enum class WindowScoreKind : uint8_t {
  kSoftmax,  // probabilities, as FastKV's
  kDot,      // the scaled dot products, 0 where a row sees nothing [GemFilter 2409.17422]
};

// FastKV's window scores of one (sequence, layer) [2502.01068; SnapKV 2404.14469]: per query head,
// the softmax over all visible slots of each window row, summed over the rows in order; pooled
// along slots [0, num_columns) (stride 1, same length; avg divides by the full width, max ignores
// what lies outside); then summed over the group in head order. Columns at num_columns and above
// (the window itself) are neither scored nor part of any pool. kDot sums scale * q K^T in place of
// the softmax.
struct WindowScoresParams {
  const float* queries = nullptr;  // [num_window_rows, query_stride], rotated, backend memory
  int64_t query_stride = 0;
  int32_t num_window_rows = 0;
  const int32_t* visible = nullptr;  // [num_window_rows], slots that each row sees, >= 1
  float scale = 0.0f;
  KvArena arena;
  const KvHeadView* heads = nullptr;  // [num_kv_heads], equal num_slots
  int32_t num_columns = 0;            // >= 1
  PoolKind pool = PoolKind::kMax;
  int32_t pool_width = 7;   // odd
  float* pooled = nullptr;  // [num_kv_heads, num_columns], host memory
  float* raw = nullptr;     // [num_kv_heads, num_columns], the same without pooling
  WindowScoreKind kind = WindowScoreKind::kSoftmax;
};

enum class ColumnKind : uint8_t {
  kProbability,  // adds llrint(p * 2^40), ties to even
  kAboveMean,    // adds 1 where p >= 1 / visible
};

// What a probability of 1 adds to a column sum.
inline constexpr int64_t kColumnUnit = int64_t{1} << 40;

// Distance buckets that a ColumnScores call may have.
inline constexpr int32_t kMaxBuckets = 16;

// What each slot of one (sequence, layer) got from `num_rows` query rows, in whole numbers: H2O's
// accumulated attention [2306.14048], Scissorhands' counts [2305.17118], FastGen's masses
// [2310.01801].
//
// For every row and query head, p = softmax(scale * q K^T) over the row's visible slots of its KV
// head (f32, by WindowScores' operations: keys as stored, queries and probabilities not rounded;
// ref in double). Each p adds its addend to sums[h][slot]; h is the query head, or the KV head,
// where the addends of its group's query heads meet. near_sums get the same addends, but only those
// of slots >= visible - near_slots: each row's own last near_slots slots. A row and query head adds
// nothing where one of its scores is NaN or +inf, or all are -inf.
//
// kAboveMean compares without a division: exp(score - max) * visible >= sum of exps, so that every
// slot of a uniform row counts.
//
// Integers make the order of additions irrelevant: sums are the same bit for bit however rows are
// split into calls, on any number of threads and (cpu) any ISA. Over all columns a row and query
// head add kColumnUnit within visible / 2 (rounding of addends) plus f32's error of p. A column
// holds 2^22 addends of p = 1 without overflow.
//
// Who owns what: the caller zeroes the sums before the first call (this op only adds), and turns
// them into scores: add integers first (chunks, query heads of a group, sums of layers), then
// convert once, by static_cast<float>(sum), and normalise after that. So a total's float does not
// depend on how it was collected.
//
// Buckets split a column by how far its rows are from it: slot s of a row that sees `visible` slots
// has the distance visible - 1 - s, 0 for the newest, and its addend goes to bucket b, the number
// of bucket_edges that are at most the distance. So the table of one call answers for every window
// that ends on an edge. Probabilities only, and without near_sums.
//
// Mass of a kept set of columns S together with a moving window of near_slots, averaged over rows:
// (sum over S of sums + sum over the other columns of near_sums) / (rows * kColumnUnit); for sums
// of a KV head, the rows of every query head of the group.
struct ColumnScoresParams {
  // [num_rows, query_stride], rotated, backend memory; query head h at h * head_dim.
  const float* queries = nullptr;
  int64_t query_stride = 0;
  int32_t num_rows = 0;  // >= 0
  // [num_rows, num_kv_heads], each in [0, that head's num_slots]; 0: the row adds nothing there.
  const int32_t* visible = nullptr;
  float scale = 0.0f;
  KvArena arena;
  const KvHeadView* heads = nullptr;  // [num_kv_heads], lengths may differ
  ColumnKind kind = ColumnKind::kProbability;
  bool per_query_head = false;
  int32_t near_slots = 0;  // >= 0
  // At most kMaxBuckets - 1, ascending, from 1 up; empty: one bucket.
  std::span<const int32_t> bucket_edges = {};
  int64_t bucket_stride = 0;  // int64 between the buckets of a sum; at least every num_slots
  // [num_query_heads] if per_query_head, else [num_kv_heads]; host memory, added to. Entry h has
  // room for num_slots of its KV head, in each bucket; null: that head is not scored.
  std::span<int64_t* const> sums = {};
  std::span<int64_t* const> near_sums = {};  // empty, or as sums and null in the same places
};

inline constexpr int32_t kMaxClasses = 8;

// How much of each row's attention falls on each class of slots, of one (sequence, layer): with
// p = softmax(scale * q K^T) as ColumnScores has it, masses = llrint(2^40 * sum of p over the
// class), found in one pass over K together with the softmax (f32; ref in double). A row and query
// head has masses of 0 where ColumnScores would add nothing. Same bits for any number of threads
// and rows of a call, and on any ISA.
struct ClassMassesParams {
  const float* queries = nullptr;  // as in ColumnScoresParams
  int64_t query_stride = 0;
  int32_t num_rows = 0;              // >= 0
  const int32_t* visible = nullptr;  // [num_rows, num_kv_heads], as in ColumnScoresParams
  float scale = 0.0f;
  KvArena arena;
  const KvHeadView* heads = nullptr;  // [num_kv_heads], lengths may differ
  int32_t num_classes = 1;            // [1, kMaxClasses]
  // [num_kv_heads], or [num_query_heads] where query heads differ. The class of each slot of that
  // head, [num_slots], host memory; num_classes and above: none.
  std::span<const uint8_t* const> classes;
  int64_t* masses = nullptr;  // [num_rows, num_query_heads, num_classes], host memory, written
};

// The k best of [0, num_scores), ascending. Order: score, then tie_break, then the lower index; a
// NaN score is below every number, and among NaNs the lower index comes first.
struct SelectTopKParams {
  const float* scores = nullptr;     // [num_scores]
  const float* tie_break = nullptr;  // [num_scores]; null: none
  const uint8_t* skip = nullptr;     // [num_scores], 1: may not be chosen; null: all may
  int32_t num_scores = 0;
  int32_t k = 0;           // <= number that may be chosen
  int32_t* out = nullptr;  // [k], host memory
};

// Copies K and V of single slots, in order; lists of different heads may run at once, so no list
// may read or write another list's slots.
struct KvMove {
  int64_t src_slot = 0;
  int64_t dst_slot = 0;
};
struct MoveKvParams {
  KvArena arena;
  std::span<const std::span<const KvMove>> lists;
};

// dst[dst_rows[i], 0..width) = src[src_rows[i], 0..width). No row of dst lies in src.
struct CopyRowsParams {
  const float* src = nullptr;
  int64_t src_stride = 0;
  float* dst = nullptr;
  int64_t dst_stride = 0;
  int64_t width = 0;
  std::span<const int64_t> src_rows;
  std::span<const int64_t> dst_rows;
};

// The largest call that will ever be made; lets a backend allocate its scratch at load.
struct WorkspaceLimits {
  int64_t max_rows = 0;          // rows of one Linear or Attention call
  int64_t max_cols = 0;          // largest input width of a weight
  int64_t max_slots = 0;         // longest KV head, in slots
  int32_t num_query_heads = 0;
  int32_t head_dim = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;  // "ref", "cpu"
  virtual std::string isa() const = 0;   // "scalar", "avx2", "avx512"
  virtual KvDType default_kv_dtype() const = 0;

  virtual StatusOr<std::unique_ptr<Buffer>> Allocate(size_t num_bytes) = 0;
  virtual size_t KvPageBytes(const KvGeometry& geometry) const = 0;
  virtual Status ReserveWorkspace(const WorkspaceLimits& limits) = 0;

  // Packs matrices of equal cols, stacked by rows (e.g. q, k, v). Views may be dropped afterwards.
  virtual StatusOr<std::unique_ptr<PackedWeight>> Pack(std::span<const TensorView> parts) = 0;
  // Packs gate and up (equal shapes) for LinearEpilogue::kSiluMul.
  virtual StatusOr<std::unique_ptr<PackedWeight>> PackGateUp(const TensorView& gate,
                                                             const TensorView& up) = 0;

  virtual void EmbedRows(const EmbedRowsParams& params) = 0;
  virtual void Linear(const LinearParams& params) = 0;
  virtual void RopeStore(const RopeStoreParams& params) = 0;
  virtual void Attention(const AttentionParams& params) = 0;
  virtual void WindowScores(const WindowScoresParams& params) = 0;
  virtual void ColumnScores(const ColumnScoresParams& params) = 0;
  virtual void ClassMasses(const ClassMassesParams& params) = 0;
  virtual void SelectTopK(const SelectTopKParams& params) = 0;
  virtual void MoveKv(const MoveKvParams& params) = 0;
  virtual void CopyRows(const CopyRowsParams& params) = 0;

  // Writes or reads one slot as f32, k and v [head_dim] each, host memory; for tests and tools.
  virtual void WriteKvSlot(const KvArena& arena, int64_t slot, const float* k, const float* v) = 0;
  virtual void ReadKvSlot(const KvArena& arena, int64_t slot, float* k, float* v) const = 0;
};

}  // namespace headroom::kernels
