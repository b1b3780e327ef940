// AttentionStatistics: what one prompt says about every head (PromptRecord), measured beside the
// prefill through the engine's fused kernels. No n x n map exists: memory is linear in the prompt's
// length, and the queries of 1,024 rows of each layer.
//
// Two sets of rows. Eval rows, the last quarter but at most 512, are those whose kept mass counts:
// early rows are covered by anything. Select rows, up to 512 in front of them, choose the heavy
// columns: chosen on the rows they are measured on, they would look better than they are.
// (Statistic after FastGen's recovery [2310.01801]; why held out and late: docs/profiling.md.)
//
// A record is the same, byte for byte, for any number of threads, chunk size and order of prompts.
// One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "profiler/profile_record.h"
#include "profiler/prompt_reader.h"

namespace headroom::profiler {

struct StatisticsOptions {
  Ladder ladder;
  std::optional<Ladder> paper_ladder;  // also measure it as the paper does; costs more
  int32_t sink_tokens = 4;
  int32_t recent_tokens = 64;  // w0 of the ladder; the paper's rungs keep a row's own token
  int32_t window = 8;          // content rows whose scores choose the top tokens (FastKV)
  int64_t top_ppm = 200'000;   // share of N that overlap_ppm calls top tokens
  int32_t num_value_rows = 4;  // eval rows whose value error is measured; 0: none
  int32_t num_late_rows = 64;  // last rows whose masses are taken one by one; 0: none
};

// First rows of the two sets: select rows [select, eval), eval rows [eval, n).
struct RowSets {
  int32_t select_begin = 0;
  int32_t eval_begin = 0;
};
RowSets SplitRows(int32_t num_tokens);

class AttentionStatistics {
 public:
  // `reader` outlives the statistics. Error: ResourceExhausted.
  static StatusOr<std::unique_ptr<AttentionStatistics>> Create(PromptReader& reader,
                                                               StatisticsOptions options);
  ~AttentionStatistics();

  // Reads a prompt of 1 to reader.max_tokens() tokens.
  PromptRecord Measure(const PromptTokens& prompt, const std::string& domain, double weight);

  // The most bytes that tables and queries took so far.
  size_t peak_bytes() const;

 private:
  AttentionStatistics(PromptReader& reader, StatisticsOptions options);

  PromptReader& reader_;
  const StatisticsOptions options_;
  std::unique_ptr<kernels::Buffer> queries_;  // [layers, kept rows, query width]
  size_t peak_bytes_ = 0;
};

}  // namespace headroom::profiler
