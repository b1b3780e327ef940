#include "engine/kv/decode_control.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace headroom::engine {
namespace {

using kernels::kPageSize;

int64_t PagesOf(int64_t num_slots) { return (num_slots + kPageSize - 1) / kPageSize; }

bool IsFull(const DecodePlan& plan, const KvHead& head) {
  return plan.evicts() && head.length() >= plan.capacity_slots + kPageSize;
}

// The row that is decoded next is pinned where its class is.
void PinNext(KvSequence& sequence, size_t head, TokenClass next) {
  const DecodePlan& plan = sequence.decode_plans[head];
  const bool wanted = (plan.pins_special && next == TokenClass::kSpecial) ||
                      (plan.pins_punctuation && next == TokenClass::kPunctuation);
  if (!wanted) {
    return;
  }
  std::vector<int32_t>& pinned = sequence.pinned[head];
  const int32_t begin = sequence.num_prompt_positions();
  const auto position = static_cast<int32_t>(begin + sequence.decoded_slots);
  const auto rows = std::lower_bound(pinned.begin(), pinned.end(), begin);
  const bool known = !pinned.empty() && pinned.back() == position;
  if (!known && pinned.end() - rows < plan.max_pinned_rows) {
    pinned.push_back(position);
  }
}

// Pages that decode rows take in one head, pages copied because they are shared included.
int64_t NewDecodePages(const DecodePlan& plan, const KvHead& head, const PagePool& pool,
                       int32_t num_rows) {
  const auto is_shared = [&](int32_t page) { return pool.references(page) > 1; };
  if (IsFull(plan, head)) {
    // What lies behind the evicted slots moves up, into private pages.
    return num_rows + std::count_if(head.pages().begin(), head.pages().end(), is_shared);
  }
  const bool copies = head.length() % kPageSize != 0 && is_shared(head.pages().back());
  return PagesOf(head.length() + num_rows) - PagesOf(head.length()) + (copies ? 1 : 0);
}

}  // namespace

void DecodeControl::Prepare(KvSequence& sequence, TokenClass next) {
  HEADROOM_CHECK(sequence.decoding());
  if (sequence.decode_replay != nullptr) {
    EvictRecorded(sequence);
    if (sequence.decoded_slots < sequence.decode_replay->decoded_slots) {
      return;
    }
    sequence.scores = sequence.decode_replay->scores;
    sequence.pinned = sequence.decode_replay->pinned;
    sequence.decode_replay.reset();
  }
  for (size_t head = 0; head < sequence.heads.size(); ++head) {
    while (IsFull(sequence.decode_plans[head], sequence.heads[head])) {
      EvictPage(sequence, head);
    }
    PinNext(sequence, head, next);
  }
  moves_.Run(backend_, arena_, pool_);
}

void DecodeControl::EvictPage(KvSequence& sequence, size_t head) {
  FindEvictable(sequence, head);
  HEADROOM_CHECK(slots_.size() >= kPageSize);
  if (sequence.decode_plans[head].kind == DecodeKind::kLowestScore) {
    ChooseLowest(sequence, head);
  }
  slots_.resize(kPageSize);
  std::sort(slots_.begin(), slots_.end());
  Evict(sequence, head, slots_);
}

void DecodeControl::FindEvictable(const KvSequence& sequence, size_t head) {
  const DecodePlan& plan = sequence.decode_plans[head];
  const std::vector<int32_t>& positions = sequence.heads[head].positions();
  const std::vector<int32_t>& pinned = sequence.pinned[head];
  const int32_t recent = plan.scores() ? std::max(1, plan.recent_slots) : 0;
  const int32_t end = static_cast<int32_t>(positions.size()) - recent;
  auto next_pinned = pinned.begin();
  slots_.clear();
  for (int32_t slot = plan.sink_slots; slot < end; ++slot) {
    const int32_t position = positions[static_cast<size_t>(slot)];
    next_pinned = std::find_if(next_pinned, pinned.end(),
                               [position](int32_t each) { return each >= position; });
    if (next_pinned == pinned.end() || *next_pinned != position) {
      slots_.push_back(slot);
    }
  }
}

// Moves the kPageSize lowest of slots_ to its front; among equals the lower position stays.
void DecodeControl::ChooseLowest(const KvSequence& sequence, size_t head) {
  const std::vector<int32_t>& positions = sequence.heads[head].positions();
  scores_.resize(positions.size());
  for (const int32_t slot : slots_) {
    const auto index = static_cast<size_t>(slot);
    // Every row from the slot's own position on has seen it.
    const int64_t num_observers = int64_t{positions.back()} - positions[index] + 1;
    scores_[index] = sequence.scores[head].Score(slot, num_observers);
  }
  std::nth_element(slots_.begin(), slots_.begin() + kPageSize, slots_.end(),
                   [this](int32_t a, int32_t b) {
                     const int64_t score_a = scores_[static_cast<size_t>(a)];
                     const int64_t score_b = scores_[static_cast<size_t>(b)];
                     return score_a != score_b ? score_a < score_b : a > b;
                   });
}

void DecodeControl::Evict(KvSequence& sequence, size_t head, std::span<const int32_t> slots) {
  KvHead& of = sequence.heads[head];
  if (keeps_replay_) {
    DecodeEviction eviction = {
        .before_row = sequence.decoded_slots, .head = static_cast<int32_t>(head), .positions = {}};
    for (const int32_t slot : slots) {
      eviction.positions.push_back(of.positions()[static_cast<size_t>(slot)]);
    }
    sequence.evictions.push_back(std::move(eviction));
  }
  const size_t list = head % static_cast<size_t>(sequence.num_kv_heads);
  of.Evict(pool_, slots, moves_.lists[list], moves_.released);
  if (sequence.scores[head].active()) {
    sequence.scores[head].Drop(slots);
  }
}

void DecodeControl::EvictRecorded(KvSequence& sequence) {
  const std::vector<DecodeEviction>& recorded = sequence.decode_replay->evictions;
  for (; sequence.next_eviction < recorded.size(); ++sequence.next_eviction) {
    const DecodeEviction& eviction = recorded[sequence.next_eviction];
    if (eviction.before_row != sequence.decoded_slots) {
      break;
    }
    const auto head = static_cast<size_t>(eviction.head);
    sequence.heads[head].FindSlots(eviction.positions, slots_);
    Evict(sequence, head, slots_);
  }
  moves_.Run(backend_, arena_, pool_);
}

void DecodeControl::Observe(KvSequence& sequence, int32_t layer, int32_t position,
                            const float* queries) {
  const auto num_heads = static_cast<size_t>(sequence.num_kv_heads);
  const size_t first = static_cast<size_t>(layer) * num_heads;
  const DecodePlan* plans = &sequence.decode_plans[first];
  const auto* const scored =
      std::find_if(plans, plans + num_heads, [](const DecodePlan& plan) { return plan.scores(); });
  if (scored == plans + num_heads || sequence.decode_replay != nullptr) {
    return;
  }
  addends_.resize(num_heads);
  sums_.assign(num_heads, nullptr);
  views_.clear();
  visible_.clear();
  for (size_t index = 0; index < num_heads; ++index) {
    const KvHead& head = sequence.heads[first + index];
    views_.push_back({.pages = head.pages().data(), .num_slots = head.length()});
    visible_.push_back(head.VisibleAt(position));
    if (plans[index].scores()) {
      HEADROOM_CHECK(plans[index].score == scored->score);
      addends_[index].assign(static_cast<size_t>(head.length()), 0);
      sums_[index] = addends_[index].data();
    }
  }
  backend_.ColumnScores({.queries = queries,
                         .query_stride = 0,
                         .num_rows = 1,
                         .visible = visible_.data(),
                         .scale = attention_scale_,
                         .arena = arena_,
                         .heads = views_.data(),
                         .kind = scored->score == DecodeScore::kRecentCount
                                     ? kernels::ColumnKind::kAboveMean
                                     : kernels::ColumnKind::kProbability,
                         .sums = sums_});
  for (size_t index = 0; index < num_heads; ++index) {
    if (sums_[index] == nullptr) {
      continue;
    }
    SlotScores& scores = sequence.scores[first + index];
    if (!scores.active()) {
      scores = SlotScores(plans[index].score, {});  // the prompt's rows gave nothing
    }
    scores.AddRow(addends_[index]);
  }
}

std::shared_ptr<const KvReplay> DecodeControl::MakeReplay(const KvSequence& sequence) const {
  HEADROOM_CHECK(keeps_replay_ && sequence.decoding());
  if (sequence.decode_replay != nullptr) {
    return sequence.decode_replay;  // preempted again before it had caught up
  }
  auto replay = std::make_shared<KvReplay>();
  replay->rows = sequence.rows;
  replay->receipt = sequence.receipt;
  replay->decoded_slots = sequence.decoded_slots;
  replay->evictions = sequence.evictions;
  replay->scores = sequence.scores;
  replay->pinned = sequence.pinned;
  replay->decode_plans = sequence.decode_plans;
  // What the prefill kept: what is still there, and what went while decoding.
  const int32_t decode_begin = sequence.num_prompt_positions();
  const auto take = [&](int32_t head, const std::vector<int32_t>& positions) {
    std::vector<int32_t>& kept = replay->kept[static_cast<size_t>(head)];
    std::copy_if(positions.begin(), positions.end(), std::back_inserter(kept),
                 [&](int32_t position) { return position < decode_begin; });
  };
  replay->kept.resize(sequence.heads.size());
  for (size_t head = 0; head < sequence.heads.size(); ++head) {
    take(static_cast<int32_t>(head), sequence.heads[head].positions());
  }
  for (const DecodeEviction& eviction : sequence.evictions) {
    take(eviction.head, eviction.positions);
  }
  for (std::vector<int32_t>& kept : replay->kept) {
    std::sort(kept.begin(), kept.end());
  }
  return replay;
}

int32_t NextReplayRows(const KvSequence& sequence) {
  const KvReplay* replay = sequence.decode_replay.get();
  if (replay == nullptr) {
    return 0;
  }
  int64_t end = replay->decoded_slots;
  for (size_t i = sequence.next_eviction; i < replay->evictions.size(); ++i) {
    if (replay->evictions[i].before_row > sequence.decoded_slots) {
      end = std::min(end, replay->evictions[i].before_row);
      break;
    }
  }
  return static_cast<int32_t>(end - sequence.decoded_slots);
}

int64_t MostNewPages(const KvSequence& sequence, const PagePool& pool, int32_t num_rows,
                     bool ends_phase) {
  int64_t pages = 0;
  if (sequence.decoding()) {
    for (size_t head = 0; head < sequence.heads.size(); ++head) {
      pages += NewDecodePages(sequence.decode_plans[head], sequence.heads[head], pool, num_rows);
    }
    return pages;
  }
  const PrefillPhase& phase = sequence.current_phase();
  int64_t largest_layer = 0;  // what its winners take at most
  for (int32_t layer = phase.layer_begin; layer <= phase.layer_end; ++layer) {
    const bool runs = layer < phase.layer_end;
    if (!runs && !phase.selects_rows) {
      break;
    }
    int64_t of_layer = 0;
    for (int32_t head = 0; head < sequence.num_kv_heads; ++head) {
      const int64_t length = sequence.head(layer, head).length();
      const int64_t grown = sequence.IsStored(layer) ? length : length + num_rows;
      pages += PagesOf(grown) - PagesOf(length);
      of_layer += PagesOf(grown);
    }
    largest_layer = std::max(largest_layer, of_layer);
  }
  return pages + (ends_phase ? largest_layer : 0);
}

}  // namespace headroom::engine
