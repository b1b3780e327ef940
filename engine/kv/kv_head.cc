#include "engine/kv/kv_head.h"

#include <algorithm>

#include "base/check.h"

namespace headroom::engine {
namespace {

using kernels::kPageSize;
using kernels::KvMove;

int32_t TakePage(PagePool& pool) {
  const int32_t page = pool.Allocate();
  HEADROOM_CHECK(page >= 0);  // the engine runs only what is reserved
  return page;
}

}  // namespace

int32_t KvHead::VisibleAt(int32_t position) const {
  if (!positions_.empty() && positions_.back() <= position) {
    return length();
  }
  return static_cast<int32_t>(std::upper_bound(positions_.begin(), positions_.end(), position) -
                              positions_.begin());
}

void KvHead::FindSlots(std::span<const int32_t> positions, std::vector<int32_t>& slots) const {
  slots.clear();
  auto found = positions_.begin();
  for (const int32_t position : positions) {
    found = std::lower_bound(found, positions_.end(), position);
    HEADROOM_CHECK(found != positions_.end() && *found == position);
    slots.push_back(static_cast<int32_t>(found - positions_.begin()));
  }
}

void KvHead::MakePrivate(PagePool& pool, size_t index, int32_t num_slots,
                         std::vector<KvMove>& moves) {
  const int32_t shared = pages_[index];
  if (pool.references(shared) == 1) {
    return;
  }
  const int32_t page = TakePage(pool);
  for (int32_t i = 0; i < num_slots; ++i) {
    moves.push_back(
        {.src_slot = int64_t{shared} * kPageSize + i, .dst_slot = int64_t{page} * kPageSize + i});
  }
  pages_[index] = page;
  pool.Release(shared);  // others hold it: the copy may read it later
}

int64_t KvHead::Append(PagePool& pool, int32_t position, std::vector<KvMove>& moves) {
  HEADROOM_CHECK(positions_.empty() || positions_.back() < position);
  const int32_t offset = length() % kPageSize;
  if (offset == 0) {
    pages_.push_back(TakePage(pool));
  } else {
    MakePrivate(pool, pages_.size() - 1, offset, moves);
  }
  positions_.push_back(position);
  return Slot(length() - 1);
}

void KvHead::Compact(PagePool& pool, std::span<const int32_t> kept, std::vector<KvMove>& moves,
                     std::vector<int32_t>& released) {
  HEADROOM_CHECK(kept.size() <= positions_.size());
  KvHead compacted;
  compacted.positions_.reserve(kept.size());
  for (size_t i = 0; i < kept.size(); ++i) {
    const int32_t slot = kept[i];
    HEADROOM_CHECK(slot >= 0 && slot < length() && (i == 0 || kept[i - 1] < slot));
    if (i % kPageSize == 0) {
      compacted.pages_.push_back(TakePage(pool));
    }
    compacted.positions_.push_back(positions_[static_cast<size_t>(slot)]);
    moves.push_back({.src_slot = Slot(slot), .dst_slot = compacted.Slot(static_cast<int32_t>(i))});
  }
  released.insert(released.end(), pages_.begin(), pages_.end());
  *this = std::move(compacted);
}

void KvHead::EvictRun(PagePool& pool, int32_t first, std::vector<KvMove>& moves,
                      std::vector<int32_t>& released) {
  HEADROOM_CHECK(first >= 0 && length() >= first + kPageSize);
  // The page that holds the boundary keeps what lies before it and takes the rest from the page
  // after it, which then is free; everything behind moves by exactly one page: no copy at all.
  const size_t boundary = static_cast<size_t>(first / kPageSize);
  size_t dropped = boundary;
  if (first % kPageSize != 0) {
    const int32_t boundary_end = (first / kPageSize + 1) * kPageSize;
    dropped = boundary + 1;
    MakePrivate(pool, boundary, first % kPageSize, moves);
    for (int32_t i = first; i < boundary_end && i + kPageSize < length(); ++i) {
      moves.push_back({.src_slot = Slot(i + kPageSize), .dst_slot = Slot(i)});
    }
  }
  released.push_back(pages_[dropped]);
  pages_.erase(pages_.begin() + static_cast<std::ptrdiff_t>(dropped));
  const auto oldest = positions_.begin() + first;
  positions_.erase(oldest, oldest + kPageSize);
}

void KvHead::Evict(PagePool& pool, std::span<const int32_t> slots, std::vector<KvMove>& moves,
                   std::vector<int32_t>& released) {
  HEADROOM_CHECK(!slots.empty() && slots.front() >= 0 && slots.back() < length());
  if (slots.size() == kPageSize && slots.back() - slots.front() == kPageSize - 1) {
    EvictRun(pool, slots.front(), moves, released);
    return;
  }
  // Sources are read where they lie now: a page that is copied for writing stays with its sharers.
  const std::vector<int32_t> old_pages = pages_;
  const auto old_slot = [&](int32_t index) {
    return int64_t{old_pages[static_cast<size_t>(index / kPageSize)]} * kPageSize +
           index % kPageSize;
  };
  const int32_t first = slots.front();
  const int32_t new_length = length() - static_cast<int32_t>(slots.size());
  if (first % kPageSize != 0 && first < new_length) {
    MakePrivate(pool, static_cast<size_t>(first / kPageSize), first % kPageSize, moves);
  }
  auto next = slots.begin();
  int32_t kept = first;
  for (int32_t slot = first; slot < length(); ++slot) {
    if (next != slots.end() && *next == slot) {
      HEADROOM_CHECK(next == slots.begin() || *(next - 1) < slot);
      ++next;
      continue;
    }
    if (kept % kPageSize == 0) {
      MakePrivate(pool, static_cast<size_t>(kept / kPageSize), 0, moves);
    }
    moves.push_back({.src_slot = old_slot(slot), .dst_slot = Slot(kept)});
    positions_[static_cast<size_t>(kept)] = positions_[static_cast<size_t>(slot)];
    ++kept;
  }
  HEADROOM_CHECK(kept == new_length);
  positions_.resize(static_cast<size_t>(new_length));
  const size_t num_pages = static_cast<size_t>((new_length + kPageSize - 1) / kPageSize);
  released.insert(released.end(), pages_.begin() + static_cast<std::ptrdiff_t>(num_pages),
                  pages_.end());
  pages_.resize(num_pages);
}

KvHead KvHead::Share(PagePool& pool) const {
  for (const int32_t page : pages_) {
    pool.AddReference(page);
  }
  return *this;
}

void KvHead::Clear(PagePool& pool) {
  for (const int32_t page : pages_) {
    pool.Release(page);
  }
  pages_.clear();
  positions_.clear();
}

}  // namespace headroom::engine
