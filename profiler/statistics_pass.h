// One prompt's way through AttentionStatistics: from rows that pass to a PromptRecord.
#pragma once

#include <cstddef>
#include <memory>

#include "profiler/attention_statistics.h"
#include "profiler/prompt_reader.h"

namespace headroom::profiler {

class StatisticsPass final : public ChunkObserver {
 public:
  // `kept_queries` has room for the select and eval rows of every layer; backend memory.
  StatisticsPass(PromptReader& reader, const StatisticsOptions& options, float* kept_queries,
                 const PromptTokens& prompt);
  ~StatisticsPass() override;

  void Observe(const ChunkRows& rows) override;
  // After the last layer of the last chunk; domain and weight are the caller's to set.
  PromptRecord Finish();
  size_t num_bytes() const;  // of its tables

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headroom::profiler
