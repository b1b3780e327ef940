// The pages of one (sequence, layer, KV head): a page list, a length, and the original position of
// each slot.
//
// Changes are planned here and carried out by the caller: methods add the slot copies that must run
// to `moves`, in order, and pages to be released after those copies to `released`. Two heads never
// touch each other's private pages, so that their lists may run at once. A page with more than one
// reference is never written: it is copied first.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/kv/page_pool.h"
#include "kernels/ops.h"

namespace headroom::engine {

class KvHead {
 public:
  int32_t length() const { return static_cast<int32_t>(positions_.size()); }
  const std::vector<int32_t>& positions() const { return positions_; }  // [length], ascending
  const std::vector<int32_t>& pages() const { return pages_; }  // [ceil(length / kPageSize)]

  int64_t Slot(int32_t index) const {
    return int64_t{pages_[static_cast<size_t>(index / kernels::kPageSize)]} * kernels::kPageSize +
           index % kernels::kPageSize;
  }
  // How many slots lie at positions up to `position`.
  int32_t VisibleAt(int32_t position) const;

  // The slots at these positions, ascending; all are there.
  void FindSlots(std::span<const int32_t> positions, std::vector<int32_t>& slots) const;

  // Adds one slot and returns it. The pool has a free page where one is needed.
  int64_t Append(PagePool& pool, int32_t position, std::vector<kernels::KvMove>& moves);

  // Keeps the slots `kept` (ascending), in fresh pages.
  void Compact(PagePool& pool, std::span<const int32_t> kept, std::vector<kernels::KvMove>& moves,
               std::vector<int32_t>& released);

  // Drops kPageSize slots that follow each other, the first of them `first`: as many as a page
  // holds, so that the later pages stay as they are.
  void EvictRun(PagePool& pool, int32_t first, std::vector<kernels::KvMove>& moves,
                std::vector<int32_t>& released);
  // Drops `slots` (ascending, at least one); what lies behind the first of them moves up.
  void Evict(PagePool& pool, std::span<const int32_t> slots, std::vector<kernels::KvMove>& moves,
             std::vector<int32_t>& released);

  // The same slots in the same pages, each with one more reference.
  KvHead Share(PagePool& pool) const;

  // Returns every page.
  void Clear(PagePool& pool);

 private:
  // Makes page `index` of the list private; its first `num_slots` slots are copied.
  void MakePrivate(PagePool& pool, size_t index, int32_t num_slots,
                   std::vector<kernels::KvMove>& moves);

  std::vector<int32_t> pages_;
  std::vector<int32_t> positions_;
};

}  // namespace headroom::engine
