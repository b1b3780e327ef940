// The kept masses of the paper's ladder as the paper measures them [FastGen 2310.01801]: the mean
// over all rows, with heavy columns chosen on the rows they are measured on. Beside the held-out
// statistic it shows how much of a recovery is an artefact of early rows and of choosing in sample.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "profiler/prompt_reader.h"
#include "profiler/rung_sets.h"

namespace headroom::profiler {

// Slots that each KV head's rows [row_begin, row_begin + num_rows) of a whole prompt see.
std::vector<int32_t> CausalVisible(int32_t row_begin, int32_t num_rows, int32_t num_kv_heads);

class PaperStatistic {
 public:
  // Rungs keep sinks, special tokens and the row's own token at least. `reader` outlives it.
  PaperStatistic(PromptReader& reader, const Ladder& ladder, std::vector<SlotKind> kinds);

  void Observe(const ChunkRows& rows);
  std::vector<int32_t> Finish();  // mass in ppm, [layers, query heads, rungs]; once
  size_t num_bytes() const { return tables_.size() * sizeof(int64_t); }

 private:
  std::span<int64_t> Table(int32_t layer, int32_t query_head);
  void FinishHead(int32_t layer, int32_t kv_head, std::vector<int32_t>* masses);

  PromptReader& reader_;
  RungSets sets_;
  std::vector<int64_t> tables_;  // [layers, query heads, buckets, num_tokens]
};

}  // namespace headroom::profiler
