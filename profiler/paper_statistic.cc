#include "profiler/paper_statistic.h"

#include <utility>

namespace headroom::profiler {

std::vector<int32_t> CausalVisible(int32_t row_begin, int32_t num_rows, int32_t num_kv_heads) {
  std::vector<int32_t> visible;
  for (int32_t row = row_begin; row < row_begin + num_rows; ++row) {
    visible.insert(visible.end(), static_cast<size_t>(num_kv_heads), row + 1);
  }
  return visible;
}

PaperStatistic::PaperStatistic(PromptReader& reader, const Ladder& ladder,
                               std::vector<SlotKind> kinds)
    : reader_(reader),
      sets_(ladder, kinds, /*recent_tokens=*/1, static_cast<int32_t>(kinds.size())),
      tables_(static_cast<size_t>(reader.num_layers()) *
              static_cast<size_t>(reader.num_query_heads()) * sets_.table_size()) {}

std::span<int64_t> PaperStatistic::Table(int32_t layer, int32_t query_head) {
  const size_t index = static_cast<size_t>(layer) * static_cast<size_t>(reader_.num_query_heads()) +
                       static_cast<size_t>(query_head);
  return {tables_.data() + index * sets_.table_size(), sets_.table_size()};
}

void PaperStatistic::Observe(const ChunkRows& rows) {
  std::vector<int64_t*> tables;
  for (int32_t head = 0; head < reader_.num_query_heads(); ++head) {
    tables.push_back(Table(rows.layer, head).data());
  }
  const std::vector<int32_t> visible =
      CausalVisible(rows.row_begin, rows.num_rows, reader_.num_kv_heads());
  reader_.model().backend.ColumnScores({.queries = rows.queries,
                                        .query_stride = rows.stride,
                                        .num_rows = rows.num_rows,
                                        .visible = visible.data(),
                                        .scale = reader_.model().attention_scale,
                                        .arena = rows.arena,
                                        .heads = rows.heads,
                                        .per_query_head = true,
                                        .bucket_edges = sets_.edges(),
                                        .bucket_stride = sets_.num_tokens(),
                                        .sums = tables});
}

void PaperStatistic::FinishHead(int32_t layer, int32_t kv_head, std::vector<int32_t>* masses) {
  const int32_t group = reader_.group_size();
  const auto num_slots = static_cast<size_t>(sets_.num_tokens());
  std::vector<int64_t> columns(num_slots, 0);
  for (int32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const std::span<int64_t> table = Table(layer, head);
    sets_.Accumulate(table);
    for (size_t slot = 0; slot < num_slots; ++slot) {
      columns[slot] += table[table.size() - num_slots + slot];
    }
  }
  sets_.RankColumns(columns);
  for (int32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    masses->resize(masses->size() + sets_.num_rungs());
    sets_.Masses(Table(layer, head), sets_.num_tokens(),
                 masses->data() + masses->size() - sets_.num_rungs());
  }
}

std::vector<int32_t> PaperStatistic::Finish() {
  std::vector<int32_t> masses;
  for (int32_t layer = 0; layer < reader_.num_layers(); ++layer) {
    for (int32_t kv_head = 0; kv_head < reader_.num_kv_heads(); ++kv_head) {
      FinishHead(layer, kv_head, &masses);
    }
  }
  return masses;
}

}  // namespace headroom::profiler
