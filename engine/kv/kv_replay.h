// What a preempted sequence leaves behind: enough to run it again to where it stood without scoring
// or choosing anything. Plain data, constant once made.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/kv/budget.h"
#include "engine/kv/policy.h"
#include "engine/kv/slot_scores.h"

namespace headroom::engine {

// Slots that one head lost while the sequence decoded.
struct DecodeEviction {
  int64_t before_row = 0;          // so many decode rows had been appended
  int32_t head = 0;                // layer * num_kv_heads + kv_head
  std::vector<int32_t> positions;  // ascending
};

struct KvReplay {
  // Of the prefill.
  std::vector<std::vector<int32_t>> rows;  // [phases], prompt positions
  std::vector<std::vector<int32_t>> kept;  // [num_layers * num_kv_heads], positions, ascending
  std::vector<DecodePlan> decode_plans;    // [num_layers * num_kv_heads], as the prefill left them
  KvReceipt receipt;

  // Of decode.
  int64_t decoded_slots = 0;
  std::vector<DecodeEviction> evictions;     // in the order they happened
  std::vector<SlotScores> scores;            // [num_layers * num_kv_heads], at the end
  std::vector<std::vector<int32_t>> pinned;  // [num_layers * num_kv_heads], at the end
};

}  // namespace headroom::engine
