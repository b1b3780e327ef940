// DecodeControl: what happens to a sequence's heads while it decodes: which slots go when a head is
// full, the scores that decide it, and the replay of all that after a preemption.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/kv/kv_replay.h"
#include "engine/kv/kv_sequence.h"
#include "engine/kv/page_pool.h"
#include "engine/kv/slot_moves.h"
#include "kernels/ops.h"

namespace headroom::engine {

class DecodeControl {
 public:
  // The references outlive the object. `attention_scale` is that of the model's logits. With
  // `keeps_replay` sequences note their evictions.
  DecodeControl(kernels::Backend& backend, const kernels::KvArena& arena, float attention_scale,
                PagePool& pool, SlotMoves& moves, bool keeps_replay)
      : backend_(backend),
        arena_(arena),
        attention_scale_(attention_scale),
        pool_(pool),
        moves_(moves),
        keeps_replay_(keeps_replay) {}

  // Before the next decode rows: evicts what the decode plans, or the record, say. `next`: what the
  // token of the row is; not read while the sequence replays.
  void Prepare(KvSequence& sequence, TokenClass next);

  // The row's queries [num_kv_heads * group_size, head_dim] of `layer`, whose own slot is stored:
  // adds to the scores of heads that evict by score.
  void Observe(KvSequence& sequence, int32_t layer, int32_t position, const float* queries);

  // What it takes to run the sequence, which decodes, again. Needs keeps_replay.
  std::shared_ptr<const KvReplay> MakeReplay(const KvSequence& sequence) const;

 private:
  void EvictPage(KvSequence& sequence, size_t head);
  void EvictRecorded(KvSequence& sequence);
  void Evict(KvSequence& sequence, size_t head, std::span<const int32_t> slots);
  // slots_ = those that are neither sinks, pinned nor recent.
  void FindEvictable(const KvSequence& sequence, size_t head);
  void ChooseLowest(const KvSequence& sequence, size_t head);

  kernels::Backend& backend_;
  const kernels::KvArena& arena_;
  const float attention_scale_;
  PagePool& pool_;
  SlotMoves& moves_;
  const bool keeps_replay_;

  // Scratch.
  std::vector<int32_t> slots_;
  std::vector<int64_t> scores_;                // [slots of a head]
  std::vector<std::vector<int64_t>> addends_;  // [num_kv_heads][slots]
  std::vector<int64_t*> sums_;                 // [num_kv_heads]
  std::vector<kernels::KvHeadView> views_;     // [num_kv_heads]
  std::vector<int32_t> visible_;               // [num_kv_heads]
};

// Decode rows of a replaying sequence that may be fed at once; 0: it has caught up.
int32_t NextReplayRows(const KvSequence& sequence);

// The most pages that `num_rows` further rows of the sequence's phase, or of decode, take at once
// beside those it holds. `ends_phase`: layers are compacted, their winners beside the old pages.
int64_t MostNewPages(const KvSequence& sequence, const PagePool& pool, int32_t num_rows,
                     bool ends_phase);

}  // namespace headroom::engine
