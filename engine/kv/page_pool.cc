#include "engine/kv/page_pool.h"

#include "base/check.h"

namespace headroom::engine {

PagePool::PagePool(int32_t num_pages) {
  HEADROOM_CHECK(num_pages >= 0);
  references_.assign(static_cast<size_t>(num_pages), 0);
  free_.reserve(static_cast<size_t>(num_pages));
  // The lowest page is on top, so that a fresh pool hands pages out in order.
  for (int32_t page = num_pages - 1; page >= 0; --page) {
    free_.push_back(page);
  }
}

int32_t PagePool::Allocate() {
  if (free_.empty()) {
    return -1;
  }
  const int32_t page = free_.back();
  free_.pop_back();
  int32_t& count = references_[static_cast<size_t>(page)];
  HEADROOM_CHECK(count == 0);
  count = 1;
  return page;
}

void PagePool::AddReference(int32_t page) {
  HEADROOM_CHECK(page >= 0 && page < num_pages());
  int32_t& count = references_[static_cast<size_t>(page)];
  HEADROOM_CHECK(count > 0);
  ++count;
}

void PagePool::Release(int32_t page) {
  HEADROOM_CHECK(page >= 0 && page < num_pages());
  int32_t& count = references_[static_cast<size_t>(page)];
  HEADROOM_CHECK(count > 0);
  if (--count == 0) {
    free_.push_back(page);
  }
}

}  // namespace headroom::engine
