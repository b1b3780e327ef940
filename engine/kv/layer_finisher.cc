#include "engine/kv/layer_finisher.h"

#include <numeric>
#include <utility>

#include "base/check.h"

namespace headroom::engine {

bool LayerFinisher::Score(const KvSequence& sequence, int32_t layer) {
  if (!sequence.NeedsQueries(layer)) {
    return false;
  }
  const int32_t num_slots = sequence.plan.phase_rows[static_cast<size_t>(sequence.phase)];
  const int32_t window_rows = sequence.WindowRowsOfPhase();
  const QueryWindow& window = sequence.windows[static_cast<size_t>(layer)];
  HEADROOM_CHECK(window.is_full() && window.num_rows() == window_rows);
  scores_.num_columns = num_slots - window_rows;
  if (scores_.num_columns == 0) {
    return false;
  }
  views_.clear();
  for (int32_t index = 0; index < sequence.num_kv_heads; ++index) {
    const KvHead& head = sequence.head(layer, index);
    HEADROOM_CHECK(head.length() == num_slots);
    views_.push_back({.pages = head.pages().data(), .num_slots = num_slots});
  }
  visible_.resize(static_cast<size_t>(window_rows));
  std::iota(visible_.begin(), visible_.end(), scores_.num_columns + 1);
  const size_t size = views_.size() * static_cast<size_t>(scores_.num_columns);
  scores_.pooled.resize(size);
  scores_.raw.resize(size);
  backend_.WindowScores({.queries = window.data(),
                         .query_stride = window.width(),
                         .num_window_rows = window_rows,
                         .visible = visible_.data(),
                         .scale = attention_scale_,
                         .arena = arena_,
                         .heads = views_.data(),
                         .num_columns = scores_.num_columns,
                         .pool = sequence.pool,
                         .pool_width = sequence.pool_width,
                         .pooled = scores_.pooled.data(),
                         .raw = scores_.raw.data()});
  return true;
}

void LayerFinisher::SelectSlots(const KvSequence& sequence, int32_t layer, bool scored,
                                std::vector<std::vector<int32_t>>& kept) {
  const LayerPlan& plan = sequence.plan.layers[static_cast<size_t>(layer)];
  if (plan.keep_all) {
    return;
  }
  kept.resize(plan.heads.size());
  for (size_t head = 0; head < plan.heads.size(); ++head) {
    executor_.SelectHead(plan.heads[head], sequence.plan.layer_slots[static_cast<size_t>(layer)],
                         scored ? &scores_ : nullptr, static_cast<int32_t>(head), kept[head]);
  }
}

void LayerFinisher::Compact(KvSequence& sequence, int32_t layer,
                            const std::vector<std::vector<int32_t>>& kept) {
  if (sequence.plan.layers[static_cast<size_t>(layer)].keep_all) {
    return;
  }
  for (int32_t index = 0; index < sequence.num_kv_heads; ++index) {
    KvHead& head = sequence.head(layer, index);
    const std::vector<int32_t>& slots = kept[static_cast<size_t>(index)];
    if (slots.size() < static_cast<size_t>(head.length())) {
      head.Compact(pool_, slots, moves_.lists[static_cast<size_t>(index)], moves_.released);
    }
  }
  moves_.Run(backend_, arena_, pool_);
}

void LayerFinisher::FinishLayer(KvSequence& sequence, int32_t layer) {
  HEADROOM_CHECK(sequence.layer_done[static_cast<size_t>(layer)] == 0);
  if (sequence.IsStored(layer)) {
    Compact(sequence, layer, sequence.tsp_layer_kept);
    sequence.tsp_layer_kept.clear();
  } else {
    const bool scored = Score(sequence, layer);
    SelectSlots(sequence, layer, scored, kept_);
    Compact(sequence, layer, kept_);
  }
  sequence.layer_done[static_cast<size_t>(layer)] = 1;
}

void LayerFinisher::FinishTail(KvSequence& sequence, int32_t layer) {
  HEADROOM_CHECK(sequence.rows.size() == static_cast<size_t>(sequence.phase) + 1);
  const bool scored = Score(sequence, layer);
  SelectSlots(sequence, layer, scored, sequence.tsp_layer_kept);
  std::vector<int32_t> selected;
  executor_.SelectRows(sequence.plan.tsp, static_cast<int32_t>(sequence.current_rows().size()),
                       scored ? &scores_ : nullptr, sequence.num_kv_heads, selected);
  for (int32_t& row : selected) {
    row = sequence.current_rows()[static_cast<size_t>(row)];
  }
  sequence.rows.push_back(std::move(selected));
}

}  // namespace headroom::engine
