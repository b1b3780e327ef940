// What happens to a layer when the last row of a phase has passed it: scores, plan, kept slots,
// compaction; and at the TSP layer, which rows go on.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/kv/column_sums.h"
#include "engine/kv/kv_sequence.h"
#include "engine/kv/ladder.h"
#include "engine/kv/page_pool.h"
#include "engine/kv/retention.h"
#include "engine/kv/slot_moves.h"
#include "kernels/ops.h"

namespace headroom::engine {

class LayerFinisher {
 public:
  // The references outlive the finisher. `attention_scale` is that of the model's logits.
  LayerFinisher(kernels::Backend& backend, const kernels::KvArena& arena, float attention_scale,
                PagePool& pool, SlotMoves& moves)
      : backend_(backend),
        arena_(arena),
        attention_scale_(attention_scale),
        pool_(pool),
        moves_(moves),
        executor_(backend),
        ladders_(backend) {}

  // `layer` holds every row of the current phase, and its attention has run.
  void FinishLayer(KvSequence& sequence, int32_t layer);

  // All rows of the phase have entered the TSP layer: chooses those that go on, and what the layer
  // itself keeps. Its pages stay whole until the next phase's attention has read them.
  void FinishTail(KvSequence& sequence, int32_t layer);

  // `sequence` holds all rows of a prompt whole, as `source` does; scores `layer` with the queries
  // and sums of `source`, and compacts it.
  void FinishFrom(const KvSequence& source, KvSequence& sequence, int32_t layer);

 private:
  void MakeViews(const KvSequence& sequence, int32_t layer);
  // Fills scores_ with what `source` kept of the queries (itself while it prefills); false when the
  // layer needs no scores or the window is all there is.
  bool Score(const KvSequence& source, const KvSequence& sequence, int32_t layer);
  void ScoreWindow(const KvSequence& source, const KvSequence& sequence, int32_t layer);
  void ScoreColumns(const KvSequence& source, const KvSequence& sequence, int32_t layer);
  // The sums of one table of the sequence: the source's own, or made from its window in `scratch`.
  const ColumnSums& Sums(const KvSequence& source, const KvSequence& sequence, int32_t layer,
                         const ColumnNeeds& needs, ColumnSums& scratch);
  // The class of each slot of a layer that the current phase has filled; empty: unknown.
  std::span<const TokenClass> SlotClasses(const KvSequence& sequence, int32_t layer);
  // What each head of the layer keeps; nothing where the plan keeps all.
  void SelectSlots(const KvSequence& sequence, int32_t layer, bool scored,
                   std::vector<std::vector<int32_t>>& kept);
  // Heads whose planned mass held-out rows find too small keep more.
  void CheckHeads(const KvSequence& source, KvSequence& sequence, int32_t layer,
                  std::vector<std::vector<int32_t>>& kept);
  bool FindsTooLittle(const KvSequence& sequence, const ColumnSums& sums, const HeadPlan& plan,
                      int32_t kv_head, const std::vector<int32_t>& kept, int32_t num_rows) const;
  void ClimbLadders(const KvSequence& sequence, int32_t layer,
                    std::vector<std::vector<int32_t>>& kept);
  // The same from the record of the sequence that was preempted.
  void ReplaySlots(const KvSequence& sequence, int32_t layer,
                   std::vector<std::vector<int32_t>>& kept);
  // Decode plans and pinned slots of heads with a TypedDecode, now that `kept` is known.
  void StartTyped(KvSequence& sequence, int32_t layer,
                  const std::vector<std::vector<int32_t>>& kept);
  // Scores of heads that evict by score go on from the column sums of what they keep, or from their
  // window scores.
  void StartScores(KvSequence& sequence, int32_t layer, bool scored,
                   const std::vector<std::vector<int32_t>>& kept) const;
  int64_t PromptScore(int32_t kv_head, int32_t num_kv_heads, int32_t slot) const;
  void Compact(KvSequence& sequence, int32_t layer, const std::vector<std::vector<int32_t>>& kept);
  // Nothing of the layer stays.
  void Release(KvSequence& sequence, int32_t layer);

  kernels::Backend& backend_;
  const kernels::KvArena& arena_;
  const float attention_scale_;
  PagePool& pool_;
  SlotMoves& moves_;
  RetentionExecutor executor_;
  LadderExecutor ladders_;

  // Scratch, reused by every layer.
  LayerScores scores_;
  ColumnSums heavy_sums_;                   // made from a window
  ColumnSums mass_sums_;                    // made from a window
  const ColumnSums* heavy_ = nullptr;       // of the layer in hand, where it needs columns
  const ColumnSums* mass_ = nullptr;        // of the layer in hand, where it has ladders
  std::vector<TokenClass> classes_;         // [slots], of a phase without all rows
  std::vector<int32_t> visible_;            // [window rows]
  std::vector<kernels::KvHeadView> views_;  // [num_kv_heads]
  std::vector<std::vector<int32_t>> kept_;  // [num_kv_heads]
  std::vector<int32_t> rungs_;              // [num_kv_heads], of the layer in hand; or empty
  std::vector<uint8_t> escalated_;          // [num_kv_heads], of the layer in hand; or empty
  ColumnSums check_sums_;
};

}  // namespace headroom::engine
