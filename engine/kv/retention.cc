#include "engine/kv/retention.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace headroom::engine {
namespace {

ScoreColumns ColumnsOf(const LayerScores* scores, int32_t kv_head) {
  if (scores == nullptr) {
    return {};
  }
  const size_t begin = static_cast<size_t>(kv_head) * static_cast<size_t>(scores->num_columns);
  return {.num_columns = scores->num_columns,
          .pooled = scores->pooled.data() + begin,
          .raw = scores->raw.data() + begin};
}

}  // namespace

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

void RetentionExecutor::Fill(int32_t num_slots, int32_t num_entries, const ScoreColumns& scores,
                             std::vector<int32_t>& kept) {
  const int32_t num_kept =
      static_cast<int32_t>(std::count(must_keep_.begin(), must_keep_.end(), uint8_t{1}));
  const int32_t k = num_entries - num_kept;
  HEADROOM_CHECK(k >= 0 && num_entries <= num_slots);
  if (k > 0) {
    const int32_t skipped = static_cast<int32_t>(
        std::count(must_keep_.begin(), must_keep_.begin() + scores.num_columns, uint8_t{1}));
    HEADROOM_CHECK(scores.pooled != nullptr && k <= scores.num_columns - skipped);
    winners_.resize(static_cast<size_t>(k));
    backend_.SelectTopK({.scores = scores.pooled,
                         .tie_break = scores.raw,
                         .skip = must_keep_.data(),
                         .num_scores = scores.num_columns,
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
    Fill(num_slots, plan.num_entries, {}, kept);
    return;
  }
  if (plan.score == ScoreKind::kWindowAllHeads) {
    const auto num_scores = static_cast<int32_t>(scores->pooled.size());
    Fill(num_slots, plan.num_entries, SumHeads(*scores, num_scores / scores->num_columns), kept);
    return;
  }
  Fill(num_slots, plan.num_entries, ColumnsOf(scores, kv_head), kept);
}

void RetentionExecutor::SelectLayer(const LayerPlan& plan, int32_t num_slots,
                                    const LayerScores* scores, std::span<const TokenClass> classes,
                                    std::vector<std::vector<int32_t>>& kept) {
  kept.resize(plan.heads.size());
  if (plan.pool == KvPool::kLayer) {
    SelectFromPool(plan, num_slots, scores, classes, kept);
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

void RetentionExecutor::MarkNewest(int32_t count) {
  for (auto slot = must_keep_.rbegin(); slot != must_keep_.rend() && count > 0; ++slot) {
    count -= *slot == 0 ? 1 : 0;
    *slot = 1;
  }
  HEADROOM_CHECK(count == 0);
}

void RetentionExecutor::MarkOldest(int32_t count) {
  for (auto slot = must_keep_.begin(); slot != must_keep_.end() && count > 0; ++slot) {
    count -= *slot == 0 ? 1 : 0;
    *slot = 1;
  }
  HEADROOM_CHECK(count == 0);
}

void RetentionExecutor::MarkBestOf(bool punctuation, int32_t count, const ScoreColumns& scores,
                                   std::span<const TokenClass> classes) {
  if (count == 0) {
    return;
  }
  skip_.assign(must_keep_.begin(), must_keep_.begin() + scores.num_columns);
  for (size_t slot = 0; slot < skip_.size(); ++slot) {
    if ((classes[slot] == TokenClass::kPunctuation) != punctuation) {
      skip_[slot] = 1;
    }
  }
  HEADROOM_CHECK(std::count(skip_.begin(), skip_.end(), uint8_t{0}) >= count);
  winners_.resize(static_cast<size_t>(count));
  backend_.SelectTopK({.scores = scores.pooled,
                       .tie_break = scores.raw,
                       .skip = skip_.data(),
                       .num_scores = scores.num_columns,
                       .k = count,
                       .out = winners_.data()});
  for (const int32_t slot : winners_) {
    must_keep_[static_cast<size_t>(slot)] = 1;
  }
}

void RetentionExecutor::MarkContent(int32_t num_entries, const ScoreColumns& scores,
                                    std::span<const TokenClass> classes) {
  const auto num_must = std::count(must_keep_.begin(), must_keep_.end(), uint8_t{1});
  int64_t num_content = 0;
  for (size_t slot = 0; slot < classes.size(); ++slot) {
    num_content += must_keep_[slot] == 0 && classes[slot] != TokenClass::kPunctuation ? 1 : 0;
  }
  if (num_content > num_entries - num_must) {
    MarkBestOf(false, static_cast<int32_t>(std::max<int64_t>(0, num_entries - num_must)), scores,
               classes);
    return;
  }
  for (size_t slot = 0; slot < classes.size(); ++slot) {
    must_keep_[slot] |= classes[slot] != TokenClass::kPunctuation ? 1 : 0;
  }
}

void RetentionExecutor::SelectAlone(const HeadPlan& plan, int32_t num_slots, int32_t num_entries,
                                    const LayerScores* scores, std::span<const TokenClass> classes,
                                    int32_t kv_head, std::vector<int32_t>& kept) {
  SelectSafe(plan, num_slots, num_entries, ColumnsOf(scores, kv_head), classes, kept);
}

void RetentionExecutor::SelectSafe(const HeadPlan& plan, int32_t num_slots, int32_t num_entries,
                                   const ScoreColumns& scores, std::span<const TokenClass> classes,
                                   std::vector<int32_t>& kept) {
  MarkKept(num_slots, plan.sink_slots, plan.recent_slots, plan.keep_slots);
  for (size_t slot = 0; plan.keep_special && slot < classes.size(); ++slot) {
    must_keep_[slot] |= classes[slot] == TokenClass::kSpecial ? 1 : 0;
  }
  MarkNewest(plan.newest_entries);
  MarkBestOf(true, plan.punctuation_entries, scores, classes);
  MarkOldest(plan.oldest_entries);
  if (plan.content_first) {
    MarkContent(num_entries, scores, classes);
  }
  const auto num_must =
      static_cast<int32_t>(std::count(must_keep_.begin(), must_keep_.end(), uint8_t{1}));
  Fill(num_slots, std::clamp(num_entries, num_must, num_slots), scores, kept);
}

ScoreColumns RetentionExecutor::Weigh(const LayerPlan& plan, const LayerScores& scores) {
  const bool even = std::all_of(plan.heads.begin(), plan.heads.end(),
                                [](const HeadPlan& head) { return head.weight == 1.0f; });
  const LayerScores* weighed = &scores;
  if (!even) {
    weighted_ = scores;
    const auto num_columns = static_cast<size_t>(scores.num_columns);
    for (size_t i = 0; i < weighted_.pooled.size(); ++i) {
      const float weight = plan.heads[i / num_columns].weight;
      weighted_.pooled[i] *= weight;
      weighted_.raw[i] *= weight;
    }
    weighed = &weighted_;
  }
  return {.num_columns = static_cast<int32_t>(weighed->pooled.size()),
          .pooled = weighed->pooled.data(),
          .raw = weighed->raw.data()};
}

void RetentionExecutor::SelectFromPool(const LayerPlan& plan, int32_t num_slots,
                                       const LayerScores* scores,
                                       std::span<const TokenClass> classes,
                                       std::vector<std::vector<int32_t>>& kept) {
  const size_t num_columns = scores == nullptr ? 0 : static_cast<size_t>(scores->num_columns);
  taken_.assign(plan.heads.size() * num_columns, 1);
  int32_t left = plan.pool_entries;
  for (size_t head = 0; head < plan.heads.size(); ++head) {
    const HeadPlan& head_plan = plan.heads[head];
    HEADROOM_CHECK(head_plan.rungs.empty() && head_plan.num_entries <= num_slots &&
                   head_plan.num_entries >= head_plan.safe_entries &&
                   (head_plan.competes || head_plan.num_entries == head_plan.safe_entries));
    SelectSafe(head_plan, num_slots, head_plan.safe_entries,
               ColumnsOf(scores, static_cast<int32_t>(head)), classes, kept[head]);
    if (head_plan.competes) {
      std::copy_n(must_keep_.begin(), num_columns,
                  taken_.begin() + static_cast<ptrdiff_t>(head * num_columns));
    }
    left -= static_cast<int32_t>(kept[head].size());
  }
  HEADROOM_CHECK(left >= 0);
  if (left == 0) {
    return;
  }
  HEADROOM_CHECK(scores != nullptr);
  const ScoreColumns weighed = Weigh(plan, *scores);
  while (left > 0) {
    left -= Contest(plan, weighed, num_columns, left, kept);
  }
  for (std::vector<int32_t>& slots : kept) {
    std::sort(slots.begin(), slots.end());
  }
}

// Gives the best pairs to their heads. Where more of them are a head's than it may keep, only the
// first such head gets its own, the best ones, and is out: the others then compete for the rest.
// Returns how many entries were given.
int32_t RetentionExecutor::Contest(const LayerPlan& plan, const ScoreColumns& scores,
                                   size_t num_columns, int32_t left,
                                   std::vector<std::vector<int32_t>>& kept) {
  HEADROOM_CHECK(std::count(taken_.begin(), taken_.end(), uint8_t{0}) >= left);
  winners_.resize(static_cast<size_t>(left));
  kernels::SelectTopKParams top = {.scores = scores.pooled,
                                   .tie_break = scores.raw,
                                   .skip = taken_.data(),
                                   .num_scores = scores.num_columns,
                                   .k = left,
                                   .out = winners_.data()};
  backend_.SelectTopK(top);
  std::vector<int32_t> won(plan.heads.size(), 0);
  for (const int32_t winner : winners_) {
    ++won[static_cast<size_t>(winner) / num_columns];
  }
  for (size_t head = 0; head < plan.heads.size(); ++head) {
    const int32_t most = plan.heads[head].num_entries - static_cast<int32_t>(kept[head].size());
    if (won[head] <= most) {
      continue;
    }
    const size_t first = head * num_columns;
    winners_.resize(static_cast<size_t>(most));
    top.scores += first;
    top.tie_break += first;
    top.skip += first;
    top.num_scores = static_cast<int32_t>(num_columns);
    top.k = most;
    top.out = winners_.data();
    if (most > 0) {
      backend_.SelectTopK(top);
    }
    kept[head].insert(kept[head].end(), winners_.begin(), winners_.end());
    std::fill_n(taken_.begin() + static_cast<ptrdiff_t>(first), num_columns, 1);
    return most;
  }
  for (const int32_t winner : winners_) {
    kept[static_cast<size_t>(winner) / num_columns].push_back(
        static_cast<int32_t>(static_cast<size_t>(winner) % num_columns));
  }
  return left;
}

ScoreColumns RetentionExecutor::SumHeads(const LayerScores& scores, int32_t num_kv_heads) {
  const auto columns = static_cast<size_t>(scores.num_columns);
  pooled_sum_.assign(columns, 0.0f);
  raw_sum_.assign(columns, 0.0f);
  for (size_t head = 0; head < static_cast<size_t>(num_kv_heads); ++head) {
    for (size_t column = 0; column < columns; ++column) {
      pooled_sum_[column] += scores.pooled[head * columns + column];
      raw_sum_[column] += scores.raw[head * columns + column];
    }
  }
  return {.num_columns = scores.num_columns, .pooled = pooled_sum_.data(), .raw = raw_sum_.data()};
}

void RetentionExecutor::SelectRows(const TspPlan& plan, int32_t num_slots,
                                   const LayerScores* scores, std::span<const TokenClass> classes,
                                   int32_t num_kv_heads, std::vector<int32_t>& rows) {
  MarkKept(num_slots, plan.sink_slots, plan.recent_slots, plan.keep_slots);
  const ScoreColumns sums = scores == nullptr ? ScoreColumns() : SumHeads(*scores, num_kv_heads);
  MarkBestOf(true, plan.punctuation_rows, sums, classes);
  Fill(num_slots, plan.num_rows, sums, rows);
}

}  // namespace headroom::engine
