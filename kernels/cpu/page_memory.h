// Zeroed anonymous memory, in huge pages where the system gives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.h"

namespace headroom::kernels {

// Owns one mapping. Movable; an empty one holds no memory.
class PageMemory {
 public:
  PageMemory() = default;
  ~PageMemory();
  PageMemory(PageMemory&& other) noexcept;
  PageMemory& operator=(PageMemory&& other) noexcept;

  // At least `num_bytes` zero bytes, aligned to a page. Fails when the system refuses.
  static StatusOr<PageMemory> Allocate(size_t num_bytes);

  uint8_t* data() const { return data_; }
  size_t num_bytes() const { return num_bytes_; }

 private:
  uint8_t* data_ = nullptr;
  size_t num_bytes_ = 0;     // what was asked for
  size_t mapped_bytes_ = 0;  // what munmap must be given
};

// A part of a shared mapping, which lives as long as any of its parts.
struct PageSlice {
  std::shared_ptr<PageMemory> owner;
  uint8_t* data = nullptr;
  size_t num_bytes = 0;
};

// Hands out slices of large mappings one after the other: small weights of a model lie together in
// huge pages, in the order in which they are packed. Not thread-safe.
class PageArena {
 public:
  // `num_bytes` zero bytes, aligned to 64.
  StatusOr<PageSlice> Take(size_t num_bytes);

 private:
  std::shared_ptr<PageMemory> chunk_;
  size_t used_bytes_ = 0;
};

}  // namespace headroom::kernels
