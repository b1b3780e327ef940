#include "profiler/evaluation/prompt_source.h"

#include <utility>

namespace headroom::profiler {

PromptSource::PromptSource(SequenceRunner& runner, PromptTokens prompt,
                           const std::vector<engine::KvPolicySpec>& specs)
    : runner_(runner), prompt_(std::move(prompt)) {
  for (const engine::KvPolicySpec& spec : specs) {
    if (runner_.ReadsWhole(prompt_, spec)) {
      sharing_.push_back(spec);
    }
  }
}

DecodingSequence PromptSource::Open(const engine::KvPolicySpec& spec) {
  // A source that one policy alone would use costs its bookkeeping and saves nothing.
  if (sharing_.size() < 2 || !runner_.ReadsWhole(prompt_, spec)) {
    return runner_.Prefill(prompt_, spec);
  }
  if (shared_.handle < 0) {
    shared_ = runner_.PrefillSource(prompt_, sharing_);
  }
  return runner_.OpenFrom(shared_, spec);
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
  sources_.emplace_back(dtype,
                        std::make_unique<PromptSource>(caches_.runner(dtype), prompt_, specs));
  return *sources_.back().second;
}

}  // namespace headroom::profiler
