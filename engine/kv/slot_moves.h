// Slot copies and page returns that a change of page lists still has to carry out.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/kv/page_pool.h"
#include "kernels/ops.h"

namespace headroom::engine {

// Reused by every change, so that its lists keep their memory. Engine thread only.
struct SlotMoves {
  std::vector<std::vector<kernels::KvMove>> lists;  // [num_kv_heads]; heads are independent
  std::vector<int32_t> released;                    // pages that nobody reads after the copies

  // Runs the copies, then returns the pages: the order matters, a released page may be read.
  void Run(kernels::Backend& backend, const kernels::KvArena& arena, PagePool& pool) {
    std::vector<std::span<const kernels::KvMove>> views;
    for (const std::vector<kernels::KvMove>& list : lists) {
      if (!list.empty()) {
        views.emplace_back(list);
      }
    }
    if (!views.empty()) {
      backend.MoveKv({.arena = arena, .lists = views});
      for (std::vector<kernels::KvMove>& list : lists) {
        list.clear();
      }
    }
    for (const int32_t page : released) {
      pool.Release(page);
    }
    released.clear();
  }
};

}  // namespace headroom::engine
