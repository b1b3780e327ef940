#include "engine/kv/column_sums.h"

#include <algorithm>

#include "base/check.h"

namespace headroom::engine {
namespace {

void Prepare(const kernels::KvGeometry& geometry, const ColumnNeeds& needs, int32_t num_tokens,
             ColumnSums& sums) {
  if (!sums.sums.empty()) {
    return;
  }
  sums.num_heads = geometry.num_kv_heads * (needs.per_query_head ? geometry.group_size : 1);
  sums.num_slots = num_tokens;
  const size_t size = static_cast<size_t>(sums.num_heads) * static_cast<size_t>(num_tokens);
  sums.sums.assign(size, 0);
  sums.near.assign(needs.near_slots > 0 ? size : 0, 0);
}

std::vector<int64_t*> Pointers(std::vector<int64_t>& table, int32_t num_heads, int32_t num_slots) {
  std::vector<int64_t*> heads;
  for (int32_t head = 0; head < num_heads && !table.empty(); ++head) {
    heads.push_back(table.data() + int64_t{head} * num_slots);
  }
  return heads;
}

}  // namespace

bool IsObserved(const ColumnNeeds& needs, int32_t num_tokens, int32_t row) {
  const int32_t from_end = num_tokens - 1 - row;
  return from_end < needs.last_rows && (needs.rows_of_four >> (from_end % 4) & 1) != 0;
}

int32_t NumObservedRows(const ColumnNeeds& needs, int32_t num_tokens) {
  int32_t count = 0;
  for (int32_t row = 0; row < num_tokens; ++row) {
    count += IsObserved(needs, num_tokens, row) ? 1 : 0;
  }
  return count;
}

std::vector<int32_t> NumObservers(const ColumnNeeds& needs, int32_t num_tokens) {
  std::vector<int32_t> observers(static_cast<size_t>(num_tokens));
  int32_t count = 0;
  for (int32_t slot = num_tokens - 1; slot >= 0; --slot) {
    count += IsObserved(needs, num_tokens, slot) ? 1 : 0;
    observers[static_cast<size_t>(slot)] = count;
  }
  return observers;
}

void AddColumnSums(kernels::Backend& backend, const kernels::KvArena& arena, float scale,
                   std::span<const kernels::KvHeadView> heads, const ColumnNeeds& needs,
                   int32_t num_tokens, const QueryRows& rows, ColumnSums& sums) {
  // Every fourth row is a call of its own, unless all rows count: then one call takes them all.
  const bool every_row = needs.rows_of_four == 0b1111;
  const int32_t step = every_row ? 1 : 4;
  std::vector<int32_t> visible;
  for (int32_t first = 0; first < std::min(step, rows.num_rows); ++first) {
    int32_t begin = first;
    while (begin < rows.num_rows && num_tokens - 1 - (rows.row_begin + begin) >= needs.last_rows) {
      begin += step;
    }
    if (begin >= rows.num_rows || !IsObserved(needs, num_tokens, rows.row_begin + begin)) {
      continue;
    }
    visible.clear();
    for (int32_t row = begin; row < rows.num_rows; row += step) {
      visible.insert(visible.end(), heads.size(), rows.row_begin + row + 1);
    }
    Prepare(arena.geometry, needs, num_tokens, sums);
    const std::vector<int64_t*> all = Pointers(sums.sums, sums.num_heads, num_tokens);
    const std::vector<int64_t*> near = Pointers(sums.near, sums.num_heads, num_tokens);
    backend.ColumnScores({.queries = rows.queries + begin * rows.stride,
                          .query_stride = step * rows.stride,
                          .num_rows = static_cast<int32_t>(visible.size() / heads.size()),
                          .visible = visible.data(),
                          .scale = scale,
                          .arena = arena,
                          .heads = heads.data(),
                          .kind = needs.kind,
                          .per_query_head = needs.per_query_head,
                          .near_slots = needs.near_slots,
                          .sums = all,
                          .near_sums = near});
  }
}

void ColumnsToScores(const ColumnSums& sums, const ColumnNeeds& needs, int32_t num_kv_heads,
                     bool mean, LayerScores& scores) {
  HEADROOM_CHECK(!sums.sums.empty() && sums.num_heads % num_kv_heads == 0);
  const auto num_slots = static_cast<size_t>(sums.num_slots);
  const auto group = static_cast<size_t>(sums.num_heads / num_kv_heads);
  const std::vector<int32_t> observers = NumObservers(needs, sums.num_slots);
  const double unit = needs.kind == kernels::ColumnKind::kProbability
                          ? 1.0 / static_cast<double>(kernels::kColumnUnit)
                          : 1.0;
  scores.num_columns = sums.num_slots;
  scores.pooled.resize(static_cast<size_t>(num_kv_heads) * num_slots);
  scores.raw.resize(scores.pooled.size());
  for (size_t head = 0; head < static_cast<size_t>(num_kv_heads); ++head) {
    for (size_t slot = 0; slot < num_slots; ++slot) {
      int64_t sum = 0;
      for (size_t g = 0; g < group; ++g) {
        sum += sums.sums[(head * group + g) * num_slots + slot];
      }
      const int32_t rows = std::max(observers[slot], 1);
      const double score = static_cast<double>(sum) * unit / (mean ? rows : 1);
      const size_t index = head * num_slots + slot;
      scores.pooled[index] = static_cast<float>(score);
      scores.raw[index] = static_cast<float>(score - double{scores.pooled[index]});
    }
  }
}

}  // namespace headroom::engine
