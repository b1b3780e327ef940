// PagePool: every KV page of the process, handed out one by one and reference-counted.
//
// Engine thread only. A page with more than one reference is read-only. The pool knows nothing of
// sequences; KvCache owns what it takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace headroom::engine {

class PagePool {
 public:
  explicit PagePool(int32_t num_pages);

  int32_t num_pages() const { return static_cast<int32_t>(references_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }

  // A page with one reference, or -1 when none is free.
  int32_t Allocate();
  void AddReference(int32_t page);
  // Drops one reference; the page is free again when it was the last.
  void Release(int32_t page);
  int32_t references(int32_t page) const { return references_[static_cast<size_t>(page)]; }

 private:
  std::vector<int32_t> references_;  // [num_pages], 0: free
  std::vector<int32_t> free_;        // LIFO
};

}  // namespace headroom::engine
