#include "engine/kv/layer_finisher.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace headroom::engine {

void LayerFinisher::MakeViews(const KvSequence& sequence, int32_t layer) {
  views_.clear();
  for (int32_t index = 0; index < sequence.num_kv_heads; ++index) {
    const KvHead& head = sequence.head(layer, index);
    views_.push_back({.pages = head.pages().data(), .num_slots = head.length()});
  }
}

bool LayerFinisher::Score(const KvSequence& source, const KvSequence& sequence, int32_t layer) {
  mass_ = nullptr;
  heavy_ = nullptr;
  if (sequence.NeedsColumns(layer)) {
    MakeViews(sequence, layer);
    ScoreColumns(source, sequence, layer);
    return true;
  }
  if (!sequence.NeedsWindow(layer)) {
    return false;
  }
  const int32_t num_slots = sequence.plan.phase_rows[static_cast<size_t>(sequence.phase)];
  scores_.num_columns = num_slots - sequence.WindowRowsOfPhase();
  if (scores_.num_columns == 0) {
    return false;
  }
  MakeViews(sequence, layer);
  ScoreWindow(source, sequence, layer);
  return true;
}

void LayerFinisher::ScoreWindow(const KvSequence& source, const KvSequence& sequence,
                                int32_t layer) {
  const int32_t window_rows = sequence.WindowRowsOfPhase();
  const QueryWindow& window = source.windows[static_cast<size_t>(layer)];
  HEADROOM_CHECK(window.is_full() && window.num_rows() >= window_rows);
  for (const kernels::KvHeadView& view : views_) {
    HEADROOM_CHECK(view.num_slots == scores_.num_columns + window_rows);
  }
  visible_.resize(static_cast<size_t>(window_rows));
  std::iota(visible_.begin(), visible_.end(), scores_.num_columns + 1);
  const size_t size = views_.size() * static_cast<size_t>(scores_.num_columns);
  scores_.pooled.resize(size);
  scores_.raw.resize(size);
  backend_.WindowScores({.queries = window.last(window_rows),
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
                         .raw = scores_.raw.data(),
                         .kind = sequence.plan.needs.window_kind});
}

const ColumnSums& LayerFinisher::Sums(const KvSequence& source, const KvSequence& sequence,
                                      int32_t layer, const ColumnNeeds& needs,
                                      ColumnSums& scratch) {
  if (!source.SumsFromWindow(needs)) {
    const std::vector<ColumnNeeds>& kept = source.plan.needs.columns;
    const auto found = std::find(kept.begin(), kept.end(), needs);
    HEADROOM_CHECK(found != kept.end());
    return source.columns[static_cast<size_t>(layer)][static_cast<size_t>(found - kept.begin())];
  }
  const QueryWindow& window = source.windows[static_cast<size_t>(layer)];
  const int32_t num_tokens = sequence.prompt.num_tokens;
  const int32_t num_rows = std::min(needs.last_rows, num_tokens);
  HEADROOM_CHECK(window.is_full() && window.num_rows() >= num_rows);
  scratch = {};
  AddColumnSums(backend_, arena_, attention_scale_, views_, needs, num_tokens,
                {.queries = window.last(num_rows),
                 .stride = window.width(),
                 .row_begin = num_tokens - num_rows,
                 .num_rows = num_rows},
                scratch);
  return scratch;
}

void LayerFinisher::ScoreColumns(const KvSequence& source, const KvSequence& sequence,
                                 int32_t layer) {
  const std::vector<HeadPlan>& heads = sequence.plan.layers[static_cast<size_t>(layer)].heads;
  const std::vector<ColumnNeeds>& needs = sequence.plan.needs.columns;
  const bool mean = heads.front().score == ScoreKind::kColumnMean;
  const ColumnSums& heavy = Sums(source, sequence, layer, needs.front(), heavy_sums_);
  heavy_ = &heavy;
  ColumnsToScores(heavy, needs.front(), sequence.num_kv_heads, mean, scores_);
  if (!heads.front().rungs.empty()) {
    mass_ = needs.size() == 1 ? &heavy : &Sums(source, sequence, layer, needs.back(), mass_sums_);
  }
}

std::span<const TokenClass> LayerFinisher::SlotClasses(const KvSequence& sequence, int32_t layer) {
  if (sequence.prompt.classes == nullptr) {
    return {};
  }
  const std::vector<TokenClass>& all = *sequence.prompt.classes;
  const std::vector<int32_t>& rows = sequence.current_rows();
  if (sequence.FromStash() || rows.size() < all.size()) {
    classes_.clear();
    for (const int32_t row : rows) {
      classes_.push_back(all[static_cast<size_t>(row)]);
    }
    return classes_;
  }
  return all;
}

void LayerFinisher::SelectSlots(const KvSequence& sequence, int32_t layer, bool scored,
                                std::vector<std::vector<int32_t>>& kept) {
  const LayerPlan& plan = sequence.plan.layers[static_cast<size_t>(layer)];
  rungs_.clear();
  escalated_.clear();
  if (plan.keep_all) {
    return;
  }
  executor_.SelectLayer(plan, sequence.plan.layer_slots[static_cast<size_t>(layer)],
                        scored ? &scores_ : nullptr, SlotClasses(sequence, layer), kept);
  if (mass_ != nullptr) {
    ClimbLadders(sequence, layer, kept);
  }
}

void LayerFinisher::ClimbLadders(const KvSequence& sequence, int32_t layer,
                                 std::vector<std::vector<int32_t>>& kept) {
  const std::vector<HeadPlan>& heads = sequence.plan.layers[static_cast<size_t>(layer)].heads;
  const int32_t num_tokens = sequence.prompt.num_tokens;
  LadderInput input = {
      .num_slots = num_tokens,
      .group_size = arena_.geometry.group_size,
      .scores = &scores_,
      .mass = mass_,
      .num_mass_rows = NumObservedRows(sequence.plan.needs.columns.back(), num_tokens),
      .classes = {}};
  if (sequence.prompt.classes != nullptr) {
    input.classes = *sequence.prompt.classes;
  }
  for (size_t head = 0; head < heads.size(); ++head) {
    rungs_.push_back(ladders_.Select(heads[head], input, static_cast<int32_t>(head), kept[head]));
  }
}

bool LayerFinisher::FindsTooLittle(const KvSequence& sequence, const ColumnSums& sums,
                                   const HeadPlan& plan, int32_t kv_head,
                                   const std::vector<int32_t>& kept, int32_t num_rows) const {
  const auto num_slots = static_cast<size_t>(sums.num_slots);
  const int32_t group = sums.num_heads / sequence.num_kv_heads;
  // Doubles hold these products to one part in 2^53, far below what f32 leaves of a mass.
  const double wanted = static_cast<double>(plan.check_target_ppm) / static_cast<double>(kPpm) *
                        static_cast<double>(num_rows) * static_cast<double>(kernels::kColumnUnit);
  for (int32_t g = 0; g < group; ++g) {
    const size_t begin = static_cast<size_t>(kv_head * group + g) * num_slots;
    int64_t units = 0;
    auto next = kept.begin();
    for (size_t slot = 0; slot < num_slots; ++slot) {
      const bool is_kept = next != kept.end() && static_cast<size_t>(*next) == slot;
      next += is_kept ? 1 : 0;
      units += is_kept ? sums.sums[begin + slot] : sums.near[begin + slot];
    }
    if (static_cast<double>(units) < wanted) {
      return true;
    }
  }
  return false;
}

void LayerFinisher::CheckHeads(const KvSequence& source, KvSequence& sequence, int32_t layer,
                               std::vector<std::vector<int32_t>>& kept) {
  const LayerPlan& plan = sequence.plan.layers[static_cast<size_t>(layer)];
  const int32_t window_rows = sequence.WindowRowsOfPhase();
  const int32_t num_rows = sequence.CapturedRowsOfPhase() - window_rows;
  if (num_rows == 0 || std::none_of(plan.heads.begin(), plan.heads.end(), [](const HeadPlan& head) {
        return head.check_target_ppm > 0;
      })) {
    return;
  }
  const int32_t num_slots = scores_.num_columns + window_rows;
  const QueryWindow& window = source.windows[static_cast<size_t>(layer)];
  check_sums_ = {};
  AddColumnSums(backend_, arena_, attention_scale_, views_,
                {.last_rows = window_rows + num_rows,
                 .per_query_head = true,
                 .near_slots = sequence.plan.needs.check_near},
                num_slots,
                {.queries = window.last(window_rows + num_rows),
                 .stride = window.width(),
                 .row_begin = num_slots - window_rows - num_rows,
                 .num_rows = num_rows},
                check_sums_);
  const std::span<const TokenClass> classes = SlotClasses(sequence, layer);
  escalated_.assign(plan.heads.size(), 0);
  std::vector<int32_t> planned;
  for (int32_t index = 0; index < sequence.num_kv_heads; ++index) {
    const auto head = static_cast<size_t>(index);
    const HeadPlan& of = plan.heads[head];
    if (of.check_target_ppm == 0) {
      continue;
    }
    // What a fixed head got beside its quotas depends on the budget: it is not looked at.
    executor_.SelectAlone(of, num_slots, of.competes ? of.safe_entries : 0, &scores_, classes,
                          index, planned);
    if (!FindsTooLittle(sequence, check_sums_, of, index, planned, num_rows)) {
      continue;
    }
    escalated_[head] = 1;
    ++sequence.receipt.escalated_heads;
    executor_.SelectAlone(of, num_slots, of.competes ? num_slots : of.escalated_entries, &scores_,
                          classes, index, kept[head]);
  }
  std::vector<std::string>& reasons = sequence.receipt.reasons;
  if (sequence.receipt.escalated_heads > 0 &&
      std::find(reasons.begin(), reasons.end(), "head_check") == reasons.end()) {
    reasons.emplace_back("head_check");
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
  if (sequence.current_phase().restarts) {
    Release(sequence, layer);
  } else if (sequence.IsStored(layer)) {
    Compact(sequence, layer, sequence.tsp_layer_kept);
    sequence.tsp_layer_kept.clear();
  } else if (sequence.replay != nullptr) {
    ReplaySlots(sequence, layer, kept_);
    Compact(sequence, layer, kept_);
  } else if (!sequence.is_source) {
    FinishFrom(sequence, sequence, layer);
  }
  sequence.layer_done[static_cast<size_t>(layer)] = 1;
}

void LayerFinisher::FinishFrom(const KvSequence& source, KvSequence& sequence, int32_t layer) {
  const bool scored = Score(source, sequence, layer);
  SelectSlots(sequence, layer, scored, kept_);
  if (scored) {
    CheckHeads(source, sequence, layer, kept_);
  }
  StartTyped(sequence, layer, kept_);
  StartScores(sequence, layer, scored, kept_);
  Compact(sequence, layer, kept_);
}

void LayerFinisher::StartTyped(KvSequence& sequence, int32_t layer,
                               const std::vector<std::vector<int32_t>>& kept) {
  const LayerPlan& plan = sequence.plan.layers[static_cast<size_t>(layer)];
  if (plan.keep_all) {
    return;
  }
  const std::span<const TokenClass> classes = SlotClasses(sequence, layer);
  const std::vector<int32_t>& rows = sequence.current_rows();
  for (size_t head = 0; head < plan.heads.size(); ++head) {
    const HeadPlan& of = plan.heads[head];
    TypedDecode typed = of.typed;
    if (!rungs_.empty()) {
      const auto rung = static_cast<size_t>(rungs_[head]);
      typed = rung < of.rungs.size() ? of.rungs[rung].typed : TypedDecode();
    }
    if (!escalated_.empty() && escalated_[head] != 0 && typed.kind != DecodeKind::kGrow) {
      typed.kind = of.competes ? DecodeKind::kGrow : DecodeKind::kLowestScore;
    }
    if (typed.kind == DecodeKind::kGrow) {
      continue;
    }
    const size_t flat = static_cast<size_t>(layer) * plan.heads.size() + head;
    DecodePlan& decode = sequence.decode_plans[flat];
    decode.kind = typed.kind;
    decode.sink_slots = of.sink_slots;
    decode.capacity_slots =
        static_cast<int32_t>(kept[head].size()) + kernels::kPageSize + typed.max_pinned_rows;
    decode.recent_slots = typed.kind == DecodeKind::kLowestScore ? kernels::kPageSize : 0;
    decode.pins_special = typed.pins_special;
    decode.pins_punctuation = typed.pins_punctuation;
    decode.max_pinned_rows = typed.max_pinned_rows;
    for (const int32_t slot : kept[head]) {
      const auto index = static_cast<size_t>(slot);
      const TokenClass is = classes.empty() ? TokenClass::kOther : classes[index];
      const bool old =
          typed.free_tail >= 0 && slot < static_cast<int32_t>(rows.size()) - typed.free_tail;
      if (old || (typed.pins_special && is == TokenClass::kSpecial) ||
          (typed.pins_punctuation && is == TokenClass::kPunctuation)) {
        sequence.pinned[flat].push_back(rows[index]);
      }
    }
  }
}

int64_t LayerFinisher::PromptScore(int32_t kv_head, int32_t num_kv_heads, int32_t slot) const {
  const auto head = static_cast<size_t>(kv_head);
  const auto index = static_cast<size_t>(slot);
  if (heavy_ == nullptr) {
    // Rows of the window have no score among window scores.
    const auto num_columns = static_cast<size_t>(scores_.num_columns);
    return index >= num_columns ? 0
                                : std::llround(double{scores_.raw[head * num_columns + index]} *
                                               static_cast<double>(kernels::kColumnUnit));
  }
  const auto num_slots = static_cast<size_t>(heavy_->num_slots);
  const size_t group = static_cast<size_t>(heavy_->num_heads / num_kv_heads);
  int64_t sum = 0;
  for (size_t g = 0; g < group; ++g) {
    sum += heavy_->sums[(head * group + g) * num_slots + index];
  }
  return sum;
}

void LayerFinisher::StartScores(KvSequence& sequence, int32_t layer, bool scored,
                                const std::vector<std::vector<int32_t>>& kept) const {
  if (!scored) {
    return;
  }
  for (int32_t head = 0; head < sequence.num_kv_heads; ++head) {
    const auto flat = static_cast<size_t>(layer * sequence.num_kv_heads + head);
    const DecodePlan& plan = sequence.decode_plans[flat];
    if (!plan.scores()) {
      continue;
    }
    std::vector<int64_t> sums;
    for (const int32_t slot : kept[static_cast<size_t>(head)]) {
      sums.push_back(PromptScore(head, sequence.num_kv_heads, slot));
    }
    sequence.scores[flat] = SlotScores(plan.score, std::move(sums));
  }
}

void LayerFinisher::ReplaySlots(const KvSequence& sequence, int32_t layer,
                                std::vector<std::vector<int32_t>>& kept) {
  kept.resize(static_cast<size_t>(sequence.num_kv_heads));
  for (int32_t index = 0; index < sequence.num_kv_heads; ++index) {
    const size_t flat = static_cast<size_t>(layer) * static_cast<size_t>(sequence.num_kv_heads) +
                        static_cast<size_t>(index);
    sequence.heads[flat].FindSlots(sequence.replay->kept[flat], kept[static_cast<size_t>(index)]);
  }
}

void LayerFinisher::FinishTail(KvSequence& sequence, int32_t layer) {
  const auto phase = static_cast<size_t>(sequence.phase);
  HEADROOM_CHECK(sequence.rows.size() == phase + 1);
  const bool restarts = sequence.current_phase().restarts;
  const bool scored = Score(sequence, sequence, layer);
  if (restarts) {
    Release(sequence, layer);
  } else if (sequence.replay != nullptr) {
    ReplaySlots(sequence, layer, sequence.tsp_layer_kept);
  } else {
    SelectSlots(sequence, layer, scored, sequence.tsp_layer_kept);
    if (scored) {
      CheckHeads(sequence, sequence, layer, sequence.tsp_layer_kept);
    }
    StartTyped(sequence, layer, sequence.tsp_layer_kept);
    StartScores(sequence, layer, scored, sequence.tsp_layer_kept);
  }
  if (sequence.replay != nullptr) {
    sequence.rows.push_back(sequence.replay->rows[phase + 1]);
    return;
  }
  std::vector<int32_t> selected;
  executor_.SelectRows(
      sequence.plan.selections[phase], static_cast<int32_t>(sequence.current_rows().size()),
      scored ? &scores_ : nullptr, SlotClasses(sequence, layer), sequence.num_kv_heads, selected);
  for (int32_t& row : selected) {
    row = sequence.current_rows()[static_cast<size_t>(row)];
  }
  sequence.rows.push_back(std::move(selected));
}

void LayerFinisher::Release(KvSequence& sequence, int32_t layer) {
  for (int32_t index = 0; index < sequence.num_kv_heads; ++index) {
    sequence.head(layer, index).Clear(pool_);
  }
}

}  // namespace headroom::engine
