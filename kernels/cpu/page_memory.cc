#include "kernels/cpu/page_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

namespace headroom::kernels {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;
constexpr size_t kArenaChunkBytes = size_t{32} << 20;
constexpr size_t kArenaAlignment = 64;

}  // namespace

PageMemory::~PageMemory() {
  if (data_ != nullptr) {
    ::munmap(data_, mapped_bytes_);
  }
}

PageMemory::PageMemory(PageMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      num_bytes_(std::exchange(other.num_bytes_, 0)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)) {}

PageMemory& PageMemory::operator=(PageMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(num_bytes_, other.num_bytes_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  return *this;
}

StatusOr<PageMemory> PageMemory::Allocate(size_t num_bytes) {
  PageMemory memory;
  if (num_bytes == 0) {
    return memory;
  }
  if (num_bytes > std::numeric_limits<size_t>::max() / 2) {
    return ResourceExhausted("cannot allocate {} bytes", num_bytes);
  }
  // Huge pages need an aligned start; ask for enough to align by hand.
  const bool wants_huge = num_bytes >= kHugePageBytes;
  const size_t mapped_bytes = wants_huge ? num_bytes + kHugePageBytes : num_bytes;
  void* mapping =
      ::mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) {
    return ResourceExhausted("cannot allocate {} bytes: {}", num_bytes, std::strerror(errno));
  }
  auto* begin = static_cast<uint8_t*>(mapping);
  size_t kept_bytes = mapped_bytes;
  if (wants_huge) {
    const auto address = reinterpret_cast<uintptr_t>(begin);
    const size_t lead = (kHugePageBytes - address % kHugePageBytes) % kHugePageBytes;
    if (lead > 0) {
      ::munmap(begin, lead);
      begin += lead;
      kept_bytes -= lead;
    }
    ::madvise(begin, kept_bytes, MADV_HUGEPAGE);  // advice: failure only costs speed
  }
  memory.data_ = begin;
  memory.num_bytes_ = num_bytes;
  memory.mapped_bytes_ = kept_bytes;
  return memory;
}

StatusOr<PageSlice> PageArena::Take(size_t num_bytes) {
  if (num_bytes > kArenaChunkBytes / 4) {
    HEADROOM_ASSIGN_OR_RETURN(PageMemory memory, PageMemory::Allocate(num_bytes));
    auto owner = std::make_shared<PageMemory>(std::move(memory));
    uint8_t* const data = owner->data();
    return PageSlice{std::move(owner), data, num_bytes};
  }
  if (chunk_ == nullptr || num_bytes > kArenaChunkBytes - used_bytes_) {
    HEADROOM_ASSIGN_OR_RETURN(PageMemory memory, PageMemory::Allocate(kArenaChunkBytes));
    chunk_ = std::make_shared<PageMemory>(std::move(memory));
    used_bytes_ = 0;
  }
  const PageSlice slice{chunk_, chunk_->data() + used_bytes_, num_bytes};
  used_bytes_ += (num_bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
  return slice;
}

}  // namespace headroom::kernels
