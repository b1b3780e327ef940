#include "engine/kv/retention.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace headroom::engine {

void RetentionExecutor::MarkKept(int32_t num_slots, int32_t sink_slots, int32_t recent_slots,
                                 const std::vector<int32_t>& keep_slots) {
  must_keep_.assign(static_cast<size_t>(num_slots), 0);
  const int32_t sinks = std::min(sink_slots, num_slots);
  const int32_t recent = std::min(recent_slots, num_slots);
  std::fill_n(must_keep_.begin(), sinks, uint8_t{1});
  std::fill_n(must_keep_.rbegin(), recent, uint8_t{1});
  for (const int32_t slot : keep_slots) {
    HEADROOM_CHECK(slot >= 0 && slot < num_slots);
    must_keep_[static_cast<size_t>(slot)] = 1;
  }
}

void RetentionExecutor::Fill(int32_t num_slots, int32_t num_entries, const float* pooled,
                             const float* raw, int32_t num_columns, std::vector<int32_t>& kept) {
  const int32_t num_kept =
      static_cast<int32_t>(std::count(must_keep_.begin(), must_keep_.end(), uint8_t{1}));
  const int32_t k = num_entries - num_kept;
  HEADROOM_CHECK(k >= 0 && num_entries <= num_slots);
  if (k > 0) {
    const int32_t skipped = static_cast<int32_t>(
        std::count(must_keep_.begin(), must_keep_.begin() + num_columns, uint8_t{1}));
    HEADROOM_CHECK(pooled != nullptr && k <= num_columns - skipped);
    winners_.resize(static_cast<size_t>(k));
    backend_.SelectTopK({.scores = pooled,
                         .tie_break = raw,
                         .skip = must_keep_.data(),
                         .num_scores = num_columns,
                         .k = k,
                         .out = winners_.data()});
    for (const int32_t slot : winners_) {
      must_keep_[static_cast<size_t>(slot)] = 1;
    }
  }
  kept.clear();
  kept.reserve(static_cast<size_t>(num_entries));
  for (int32_t slot = 0; slot < num_slots; ++slot) {
    if (must_keep_[static_cast<size_t>(slot)] != 0) {
      kept.push_back(slot);
    }
  }
  HEADROOM_CHECK(kept.size() == static_cast<size_t>(num_entries));
}

void RetentionExecutor::SelectHead(const HeadPlan& plan, int32_t num_slots,
                                   const LayerScores* scores, int32_t kv_head,
                                   std::vector<int32_t>& kept) {
  if (plan.num_entries == num_slots) {
    kept.resize(static_cast<size_t>(num_slots));
    std::iota(kept.begin(), kept.end(), 0);
    return;
  }
  MarkKept(num_slots, plan.sink_slots, plan.recent_slots, plan.keep_slots);
  if (plan.score == ScoreKind::kNone || scores == nullptr) {
    Fill(num_slots, plan.num_entries, nullptr, nullptr, 0, kept);
    return;
  }
  if (plan.score == ScoreKind::kWindowAllHeads) {
    const auto num_scores = static_cast<int32_t>(scores->pooled.size());
    SumHeads(*scores, num_scores / scores->num_columns);
    Fill(num_slots, plan.num_entries, pooled_sum_.data(), raw_sum_.data(), scores->num_columns,
         kept);
    return;
  }
  const size_t begin = static_cast<size_t>(kv_head) * static_cast<size_t>(scores->num_columns);
  Fill(num_slots, plan.num_entries, scores->pooled.data() + begin, scores->raw.data() + begin,
       scores->num_columns, kept);
}

void RetentionExecutor::SelectLayer(const LayerPlan& plan, int32_t num_slots,
                                    const LayerScores* scores,
                                    std::vector<std::vector<int32_t>>& kept) {
  kept.resize(plan.heads.size());
  if (plan.pool == KvPool::kLayer) {
    SelectFromPool(plan, num_slots, scores, kept);
    return;
  }
  for (size_t head = 0; head < plan.heads.size(); ++head) {
    const HeadPlan& head_plan = plan.heads[head];
    if (!head_plan.rungs.empty()) {
      continue;
    }
    if (head > 0 && head_plan.score == ScoreKind::kWindowAllHeads) {
      HEADROOM_CHECK(head_plan.num_entries == plan.heads[0].num_entries);
      kept[head] = kept[0];
      continue;
    }
    SelectHead(head_plan, num_slots, scores, static_cast<int32_t>(head), kept[head]);
  }
}

void RetentionExecutor::SelectFromPool(const LayerPlan& plan, int32_t num_slots,
                                       const LayerScores* scores,
                                       std::vector<std::vector<int32_t>>& kept) {
  const size_t num_columns = scores == nullptr ? 0 : static_cast<size_t>(scores->num_columns);
  taken_.assign(plan.heads.size() * num_columns, 0);
  int32_t left = plan.pool_entries;
  for (size_t head = 0; head < plan.heads.size(); ++head) {
    const HeadPlan& head_plan = plan.heads[head];
    HEADROOM_CHECK(head_plan.num_entries == num_slots && head_plan.rungs.empty());
    MarkKept(num_slots, head_plan.sink_slots, head_plan.recent_slots, head_plan.keep_slots);
    const auto num_must =
        static_cast<int32_t>(std::count(must_keep_.begin(), must_keep_.end(), uint8_t{1}));
    const int32_t safe = std::clamp(head_plan.safe_entries, num_must, num_slots);
    const size_t begin = head * num_columns;
    Fill(num_slots, safe, num_columns == 0 ? nullptr : scores->pooled.data() + begin,
         num_columns == 0 ? nullptr : scores->raw.data() + begin, static_cast<int32_t>(num_columns),
         kept[head]);
    std::copy_n(must_keep_.begin(), num_columns, taken_.begin() + static_cast<ptrdiff_t>(begin));
    left -= safe;
  }
  HEADROOM_CHECK(left >= 0);
  if (left == 0) {
    return;
  }
  winners_.resize(static_cast<size_t>(left));
  backend_.SelectTopK({.scores = scores->pooled.data(),
                       .tie_break = scores->raw.data(),
                       .skip = taken_.data(),
                       .num_scores = static_cast<int32_t>(taken_.size()),
                       .k = left,
                       .out = winners_.data()});
  for (const int32_t winner : winners_) {
    kept[static_cast<size_t>(winner) / num_columns].push_back(
        static_cast<int32_t>(static_cast<size_t>(winner) % num_columns));
  }
  for (std::vector<int32_t>& slots : kept) {
    std::sort(slots.begin(), slots.end());
  }
}

void RetentionExecutor::SumHeads(const LayerScores& scores, int32_t num_kv_heads) {
  const auto columns = static_cast<size_t>(scores.num_columns);
  pooled_sum_.assign(columns, 0.0f);
  raw_sum_.assign(columns, 0.0f);
  for (size_t head = 0; head < static_cast<size_t>(num_kv_heads); ++head) {
    for (size_t column = 0; column < columns; ++column) {
      pooled_sum_[column] += scores.pooled[head * columns + column];
      raw_sum_[column] += scores.raw[head * columns + column];
    }
  }
}

void RetentionExecutor::SelectRows(const TspPlan& plan, int32_t num_slots,
                                   const LayerScores* scores, int32_t num_kv_heads,
                                   std::vector<int32_t>& rows) {
  MarkKept(num_slots, plan.sink_slots, plan.recent_slots, plan.keep_slots);
  if (scores == nullptr) {
    Fill(num_slots, plan.num_rows, nullptr, nullptr, 0, rows);
    return;
  }
  SumHeads(*scores, num_kv_heads);
  Fill(num_slots, plan.num_rows, pooled_sum_.data(), raw_sum_.data(), scores->num_columns, rows);
}

}  // namespace headroom::engine
