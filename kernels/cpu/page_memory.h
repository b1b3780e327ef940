// Zeroed anonymous memory, in huge pages where the system gives them.
#pragma once

#include <cstddef>
#include <cstdint>

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

}  // namespace headroom::kernels
