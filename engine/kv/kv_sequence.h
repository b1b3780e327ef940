// The state of one open sequence of the KvCache. Plain data; KvCache keeps it consistent.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/kv/budget.h"
#include "engine/kv/column_sums.h"
#include "engine/kv/kv_head.h"
#include "engine/kv/kv_replay.h"
#include "engine/kv/policy.h"
#include "engine/kv/prefill_buffers.h"
#include "engine/kv/prefill_plan.h"
#include "engine/kv/slot_scores.h"
#include "kernels/ops.h"

namespace headroom::engine {

struct KvSequence {
  // Set when the sequence opens.
  PromptInfo prompt;
  int32_t num_kv_heads = 0;
  kernels::PoolKind pool = kernels::PoolKind::kMax;  // of window scores
  int32_t pool_width = 0;
  PrefillPlan plan;
  // [num_layers, num_kv_heads]; those of heads with a TypedDecode are set when the layer is
  // finished.
  std::vector<DecodePlan> decode_plans;

  // Changed by every forward pass.
  std::vector<KvHead> heads;               // [num_layers, num_kv_heads]
  std::vector<kernels::KvHeadView> views;  // [num_layers, num_kv_heads], made by View
  int64_t decoded_slots = 0;               // decode rows appended to layer 0

  // Decode. Scores of heads that evict by score, [num_layers, num_kv_heads].
  std::vector<SlotScores> scores;
  // Positions that are never evicted, ascending, sinks aside, [num_layers, num_kv_heads].
  std::vector<std::vector<int32_t>> pinned;
  std::vector<DecodeEviction> evictions;  // so far, where the cache keeps what a replay needs

  // A sequence that was preempted. Its prefill takes rows and kept slots from `replay`: nothing is
  // scored or selected. Decode rows evict what `decode_replay` says until they have caught up.
  std::shared_ptr<const KvReplay> replay;
  std::shared_ptr<const KvReplay> decode_replay;
  size_t next_eviction = 0;  // of decode_replay

  // Prefill. `phase` is the number of phases when the sequence decodes.
  int32_t phase = 0;
  std::vector<std::vector<int32_t>> rows;  // [phases known so far], prompt positions, ascending
  std::vector<QueryWindow> windows;        // [num_layers]
  std::vector<std::vector<ColumnSums>> columns;  // [num_layers][plan.needs.columns]
  // Rows that wait below a layer, by row index of the phase that wrote them: a phase that reads
  // those of the phase before it may write its own. Phase p writes stashes[p % 2].
  std::array<RowStash, 2> stashes;
  std::vector<uint8_t> layer_done;  // [num_layers], compacted or kept whole
  // What the TSP layer keeps of all rows that entered it, [num_kv_heads]; set when the rows are
  // selected, carried out when the next phase has passed that layer.
  std::vector<std::vector<int32_t>> tsp_layer_kept;
  // Nothing is compacted, and queries and column sums of every layer stay until the sequence
  // closes: others are opened from it.
  bool is_source = false;
  int64_t compress_ns = 0;
  KvReceipt receipt;  // final when the sequence decodes

  bool decoding() const { return phase == static_cast<int32_t>(plan.phases.size()); }
  const PrefillPhase& current_phase() const { return plan.phases[static_cast<size_t>(phase)]; }
  const std::vector<int32_t>& current_rows() const { return rows[static_cast<size_t>(phase)]; }

  KvHead& head(int32_t layer, int32_t kv_head) {
    return heads[static_cast<size_t>(layer) * static_cast<size_t>(num_kv_heads) +
                 static_cast<size_t>(kv_head)];
  }
  const KvHead& head(int32_t layer, int32_t kv_head) const {
    return const_cast<KvSequence*>(this)->head(layer, kv_head);
  }
  int64_t pages_held() const {
    int64_t pages = 0;
    for (const KvHead& each : heads) {
      pages += static_cast<int64_t>(each.pages().size());
    }
    return pages;
  }

  // Whether the rows that enter `layer` end the current phase there.
  bool IsTail(int32_t layer) const {
    return current_phase().selects_rows && layer == current_phase().layer_end;
  }
  // Whether the rows of the current phase come from a stash.
  bool FromStash() const {
    return phase > 0 && !plan.phases[static_cast<size_t>(phase) - 1].restarts;
  }
  // Whether rows of the prompt were chosen to be a prompt of their own.
  bool restarted() const { return phase > 0 && FirstKeptPhase(plan) > 0; }
  // Tokens of the prompt that is read in the end: positions go on from here.
  int32_t num_prompt_positions() const {
    return plan.phase_rows[static_cast<size_t>(FirstKeptPhase(plan))];
  }
  // Whether K and V of `layer` were stored by the phase before.
  bool IsStored(int32_t layer) const { return FromStash() && layer == current_phase().layer_begin; }
  // What scores of `layer` are computed in the current phase.
  bool NeedsWindow(int32_t layer) const;
  bool NeedsColumns(int32_t layer) const;
  // Whether column sums are computed from the window's queries when the layer is finished.
  bool SumsFromWindow(const ColumnNeeds& needs) const {
    return needs.last_rows <= plan.needs.window_rows;
  }
  // Index of a position in the current phase's rows.
  int32_t RowIndex(int32_t position) const;
  // Rows of queries that scoring reads in the current phase.
  int32_t WindowRowsOfPhase() const;
  // Rows of queries that are kept for it: those that test heads stand in front.
  int32_t CapturedRowsOfPhase() const;
};

// A sequence that goes on from where `source`, which decodes, stands; it shares every page.
std::unique_ptr<KvSequence> ForkSequence(const KvSequence& source, PagePool& pool);

// The first broken invariant of a sequence that is between two forward passes, as Internal.
Status CheckSequence(const KvSequence& sequence, const KvModelShape& shape);

}  // namespace headroom::engine
