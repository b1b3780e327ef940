#include "engine/kv/prefill_buffers.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace headroom::engine {
namespace {

using kernels::kPageSize;

// More would only hold memory: buffers are cheap to make.
constexpr size_t kMaxSpareBuffers = 64;

}  // namespace

std::unique_ptr<kernels::Buffer> BufferCache::Take(size_t num_bytes) {
  const auto fit = std::find_if(spare_.rbegin(), spare_.rend(), [&](const auto& buffer) {
    return buffer->num_bytes() >= num_bytes && buffer->num_bytes() <= 2 * num_bytes;
  });
  if (fit != spare_.rend()) {
    std::unique_ptr<kernels::Buffer> buffer = std::move(*fit);
    spare_.erase(std::next(fit).base());
    return buffer;
  }
  StatusOr<std::unique_ptr<kernels::Buffer>> buffer = backend_.Allocate(num_bytes);
  HEADROOM_CHECK(buffer.ok());
  return std::move(buffer).value();
}

void BufferCache::Give(std::unique_ptr<kernels::Buffer> buffer) {
  if (buffer != nullptr && spare_.size() < kMaxSpareBuffers) {
    spare_.push_back(std::move(buffer));
  }
}

void QueryWindow::Open(BufferCache& buffers, int32_t num_rows, int64_t width) {
  HEADROOM_CHECK(!is_open() && num_rows >= 1);
  buffer_ =
      buffers.Take(static_cast<size_t>(num_rows) * static_cast<size_t>(width) * sizeof(float));
  num_rows_ = num_rows;
  num_captured_ = 0;
  width_ = width;
}

void QueryWindow::Close(BufferCache& buffers) {
  buffers.Give(std::move(buffer_));
  num_captured_ = 0;
}

void QueryWindow::Capture(kernels::Backend& backend, const float* queries, int64_t stride,
                          const RowRange& range) {
  HEADROOM_CHECK(is_open() && range.dst_begin == num_captured_ &&
                 range.dst_begin + range.num_rows <= num_rows_);
  std::vector<int64_t> src_rows;
  std::vector<int64_t> dst_rows;
  for (int32_t row = 0; row < range.num_rows; ++row) {
    src_rows.push_back(range.src_begin + row);
    dst_rows.push_back(range.dst_begin + row);
  }
  backend.CopyRows({.src = queries,
                    .src_stride = stride,
                    .dst = buffer_->floats(),
                    .dst_stride = width_,
                    .width = width_,
                    .src_rows = src_rows,
                    .dst_rows = dst_rows});
  num_captured_ += range.num_rows;
}

void RowStash::Store(kernels::Backend& backend, int64_t width, int32_t row_begin, int32_t num_rows,
                     const float* rows, int64_t stride) {
  width_ = width;
  int32_t row = 0;
  while (row < num_rows) {
    const size_t block = static_cast<size_t>((row_begin + row) / kPageSize);
    if (block == blocks_.size()) {
      StatusOr<std::unique_ptr<kernels::Buffer>> buffer =
          backend.Allocate(kPageSize * static_cast<size_t>(width) * sizeof(float));
      HEADROOM_CHECK(buffer.ok());
      blocks_.push_back(std::move(buffer).value());
    }
    HEADROOM_CHECK(block < blocks_.size());
    std::vector<int64_t> src_rows;
    std::vector<int64_t> dst_rows;
    for (int32_t offset = (row_begin + row) % kPageSize; offset < kPageSize && row < num_rows;
         ++offset, ++row) {
      src_rows.push_back(row);
      dst_rows.push_back(offset);
    }
    backend.CopyRows({.src = rows,
                      .src_stride = stride,
                      .dst = blocks_[block]->floats(),
                      .dst_stride = width,
                      .width = width,
                      .src_rows = src_rows,
                      .dst_rows = dst_rows});
  }
}

void RowStash::Load(kernels::Backend& backend, const std::vector<int32_t>& indices, float* rows,
                    int64_t stride) const {
  size_t i = 0;
  while (i < indices.size()) {
    const size_t block = static_cast<size_t>(indices[i] / kPageSize);
    HEADROOM_CHECK(block < blocks_.size());
    std::vector<int64_t> src_rows;
    std::vector<int64_t> dst_rows;
    for (; i < indices.size() && static_cast<size_t>(indices[i] / kPageSize) == block; ++i) {
      src_rows.push_back(indices[i] % kPageSize);
      dst_rows.push_back(static_cast<int64_t>(i));
    }
    backend.CopyRows({.src = blocks_[block]->floats(),
                      .src_stride = width_,
                      .dst = rows,
                      .dst_stride = stride,
                      .width = width_,
                      .src_rows = src_rows,
                      .dst_rows = dst_rows});
  }
}

int64_t RowStash::num_bytes() const {
  return static_cast<int64_t>(blocks_.size()) * kPageSize * width_ *
         static_cast<int64_t>(sizeof(float));
}

}  // namespace headroom::engine
