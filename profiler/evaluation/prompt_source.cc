#include "profiler/evaluation/prompt_source.h"

#include <utility>

namespace headroom::profiler {

PromptSource::PromptSource(SequenceRunner& runner, PromptTokens prompt,
                           std::vector<engine::KvPolicySpec> specs)
    : runner_(runner), prompt_(std::move(prompt)), specs_(std::move(specs)) {}

DecodingSequence PromptSource::Open(const engine::KvPolicySpec& spec) {
  return runner_.Prefill(prompt_, spec);
}

PromptSource& PromptSources::at(kernels::KvDType dtype) {
  for (const auto& [known, source] : sources_) {
    if (known == dtype) {
      return *source;
    }
  }
  std::vector<engine::KvPolicySpec> specs;
  for (const EvalRow& row : rows_) {
    if (row.runs() && row.kv_dtype == dtype) {
      specs.push_back(row.spec);
    }
  }
  sources_.emplace_back(
      dtype, std::make_unique<PromptSource>(caches_.runner(dtype), prompt_, std::move(specs)));
  return *sources_.back().second;
}

}  // namespace headroom::profiler
