// Running scores of the slots of one (layer, KV head) while a sequence decodes: what the prompt's
// rows gave each slot, and what every decode row added.
//
// Whole numbers, so that they depend on no order. A slot's score goes with the slot.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/kv/policy.h"

namespace headroom::engine {

class SlotScores {
 public:
  // DecodeScore::kRecentCount looks back so many rows, in blocks: the oldest block is forgotten
  // when a new one begins.
  static constexpr int32_t kBlockRows = 16;
  static constexpr int32_t kNumBlocks = 25;

  SlotScores() = default;  // scores nothing

  // `prompt` has what the prompt's rows gave each slot that was kept, in units of
  // kernels::ColumnScores; under kRecentCount what the last kBlockRows * kNumBlocks of them gave.
  SlotScores(DecodeScore kind, std::vector<int64_t> prompt);

  bool active() const { return active_; }
  int32_t num_slots() const { return static_cast<int32_t>(sums_.size()); }

  // Adds one row's addends, [num_slots], for slots 0.. in order; slots that were appended since the
  // last row start at 0.
  void AddRow(std::span<const int64_t> addends);

  // Forgets these slots, ascending.
  void Drop(std::span<const int32_t> slots);

  // Higher stays longer. `num_observers` rows have seen the slot, >= 1.
  int64_t Score(int32_t slot, int64_t num_observers) const;

 private:
  bool active_ = false;
  DecodeScore kind_ = DecodeScore::kSum;
  // What rows gave so far; under kRecentCount the prompt's rows alone.
  std::vector<int64_t> sums_;
  // kRecentCount: row r adds to block (r / kBlockRows) % kNumBlocks; [num_slots] each, or shorter:
  // the rest is 0.
  std::array<std::vector<uint16_t>, kNumBlocks> blocks_;
  int64_t num_rows_ = 0;  // decode rows that were added
};

}  // namespace headroom::engine
