#include "profiler/attention_statistics.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "profiler/statistics_pass.h"

namespace headroom::profiler {
namespace {

constexpr int32_t kMostRows = 512;  // of either set

}  // namespace

RowSets SplitRows(int32_t num_tokens) {
  RowSets rows;
  rows.eval_begin =
      std::max(static_cast<int32_t>(int64_t{3} * num_tokens / 4), num_tokens - kMostRows);
  rows.select_begin = std::max(rows.eval_begin - kMostRows, 0);
  return rows;
}

AttentionStatistics::AttentionStatistics(PromptReader& reader, StatisticsOptions options)
    : reader_(reader), options_(std::move(options)) {}
AttentionStatistics::~AttentionStatistics() = default;

StatusOr<std::unique_ptr<AttentionStatistics>> AttentionStatistics::Create(
    PromptReader& reader, StatisticsOptions options) {
  HEADROOM_CHECK(!options.ladder.rungs.empty());
  std::unique_ptr<AttentionStatistics> statistics(
      new AttentionStatistics(reader, std::move(options)));
  const models::ModelConfig& config = reader.model().model.config();
  const auto rows = static_cast<size_t>(std::min(reader.max_tokens(), 2 * kMostRows));
  const size_t floats = static_cast<size_t>(config.num_hidden_layers) * rows *
                        static_cast<size_t>(config.query_width());
  HEADROOM_ASSIGN_OR_RETURN(statistics->queries_,
                            reader.model().backend.Allocate(sizeof(float) * floats));
  return statistics;
}

PromptRecord AttentionStatistics::Measure(const PromptTokens& prompt, const std::string& domain,
                                          double weight) {
  StatisticsPass pass(reader_, options_, queries_->floats(), prompt);
  reader_.Read(prompt.ids, pass);
  peak_bytes_ = std::max(peak_bytes_, pass.num_bytes() + queries_->num_bytes());
  PromptRecord record = pass.Finish();
  record.domain = domain;
  record.weight = weight;
  return record;
}

size_t AttentionStatistics::peak_bytes() const { return peak_bytes_; }

}  // namespace headroom::profiler
