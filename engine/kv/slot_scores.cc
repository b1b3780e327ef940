#include "engine/kv/slot_scores.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace headroom::engine {
namespace {

// Removes the elements at `slots`, ascending; a list may end before them.
template <typename T>
void Erase(std::span<const int32_t> slots, std::vector<T>& values) {
  if (slots.empty() || static_cast<size_t>(slots.front()) >= values.size()) {
    return;
  }
  auto next = slots.begin();
  size_t kept = static_cast<size_t>(*next);
  for (size_t slot = kept; slot < values.size(); ++slot) {
    if (next != slots.end() && static_cast<size_t>(*next) == slot) {
      ++next;
      continue;
    }
    values[kept++] = values[slot];
  }
  values.resize(kept);
}

}  // namespace

SlotScores::SlotScores(DecodeScore kind, std::vector<int64_t> prompt)
    : active_(true), kind_(kind), sums_(std::move(prompt)) {}

void SlotScores::AddRow(std::span<const int64_t> addends) {
  HEADROOM_CHECK(active_ && addends.size() >= sums_.size());
  sums_.resize(addends.size(), 0);
  if (kind_ != DecodeScore::kRecentCount) {
    for (size_t slot = 0; slot < addends.size(); ++slot) {
      sums_[slot] += addends[slot];
    }
    ++num_rows_;
    return;
  }
  std::vector<uint16_t>& block = blocks_[static_cast<size_t>(num_rows_ / kBlockRows % kNumBlocks)];
  if (num_rows_ % kBlockRows == 0) {
    block.clear();
  }
  block.resize(addends.size(), 0);
  for (size_t slot = 0; slot < addends.size(); ++slot) {
    block[slot] = static_cast<uint16_t>(block[slot] + addends[slot]);
  }
  ++num_rows_;
}

void SlotScores::Drop(std::span<const int32_t> slots) {
  Erase(slots, sums_);
  for (std::vector<uint16_t>& block : blocks_) {
    Erase(slots, block);
  }
}

int64_t SlotScores::Score(int32_t slot, int64_t num_observers) const {
  const auto index = static_cast<size_t>(slot);
  const int64_t sum = index < sums_.size() ? sums_[index] : 0;
  if (kind_ == DecodeScore::kSum) {
    return sum;
  }
  if (kind_ == DecodeScore::kMean) {
    return sum / num_observers;
  }
  // The prompt's rows leave the history evenly: how they are spread over blocks was not kept.
  const int64_t begun = std::min<int64_t>((num_rows_ + kBlockRows - 1) / kBlockRows, kNumBlocks);
  int64_t count = sum * (kNumBlocks - begun) / kNumBlocks;
  for (const std::vector<uint16_t>& block : blocks_) {
    count += index < block.size() ? block[index] : 0;
  }
  return count;
}

}  // namespace headroom::engine
