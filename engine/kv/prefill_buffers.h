// What a prefill keeps beside its pages: the window's queries of each layer, and the rows that wait
// below the TSP layer.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/ops.h"

namespace headroom::engine {

// Consecutive source rows that are copied to, or from, consecutive window rows.
struct RowRange {
  int32_t src_begin = 0;
  int32_t dst_begin = 0;
  int32_t num_rows = 0;
};

// Used buffers of all sequences, kept for the next request. Engine thread only.
class BufferCache {
 public:
  explicit BufferCache(kernels::Backend& backend) : backend_(backend) {}
  // At least `num_bytes`; the content is what an earlier user left.
  std::unique_ptr<kernels::Buffer> Take(size_t num_bytes);
  void Give(std::unique_ptr<kernels::Buffer> buffer);

 private:
  kernels::Backend& backend_;
  std::vector<std::unique_ptr<kernels::Buffer>> spare_;
};

// The last rows of a phase as queries of one layer, [num_rows, width].
class QueryWindow {
 public:
  // Starts empty: nothing of an earlier request is ever read.
  void Open(BufferCache& buffers, int32_t num_rows, int64_t width);
  void Close(BufferCache& buffers);

  bool is_open() const { return buffer_ != nullptr; }
  bool is_full() const { return is_open() && num_captured_ == num_rows_; }
  int32_t num_rows() const { return num_rows_; }
  int64_t width() const { return width_; }
  // The last `count` rows, [count, width].
  const float* last(int32_t count) const {
    return buffer_->floats() + int64_t{num_rows_ - count} * width_;
  }

  // Rows arrive in order: range.dst_begin is the number captured so far.
  void Capture(kernels::Backend& backend, const float* queries, int64_t stride,
               const RowRange& range);

 private:
  std::unique_ptr<kernels::Buffer> buffer_;
  int32_t num_rows_ = 0;
  int32_t num_captured_ = 0;
  int64_t width_ = 0;
};

// Rows of the residual stream by row index of their phase, in blocks of kPageSize rows.
class RowStash {
 public:
  void Store(kernels::Backend& backend, int64_t width, int32_t row_begin, int32_t num_rows,
             const float* rows, int64_t stride);
  // rows[i] = the stored row indices[i].
  void Load(kernels::Backend& backend, const std::vector<int32_t>& indices, float* rows,
            int64_t stride) const;
  // Frees the memory: a stash is large and rare.
  void Clear() { blocks_.clear(); }
  int64_t num_bytes() const;

 private:
  int64_t width_ = 0;
  std::vector<std::unique_ptr<kernels::Buffer>> blocks_;  // [kPageSize, width] each
};

}  // namespace headroom::engine
