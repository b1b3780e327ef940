// PromptSource: one prompt that is opened under many policies.
//
// The one place that decides how a policy's sequence comes about, so that callers need not know
// whether a prefill ran for it: policies that read the whole prompt share one prefill, the others
// (TSP, pyramidinfer, gemfilter) each have their own. A source lives as long as its prompt is
// measured, and its pages with it.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "profiler/evaluation/cache_set.h"
#include "profiler/evaluation/eval_row.h"
#include "profiler/evaluation/sequence_runner.h"

namespace headroom::profiler {

class PromptSource {
 public:
  // `specs` are those that Open will be called with. `runner` outlives the source.
  PromptSource(SequenceRunner& runner, PromptTokens prompt,
               const std::vector<engine::KvPolicySpec>& specs);
  ~PromptSource() { runner_.Close(shared_); }
  PromptSource(const PromptSource&) = delete;
  PromptSource& operator=(const PromptSource&) = delete;

  // The prompt in the cache under `spec`, ready to decode; the caller closes it. The same as a
  // prefill under `spec`, bit for bit.
  DecodingSequence Open(const engine::KvPolicySpec& spec);

 private:
  SequenceRunner& runner_;
  const PromptTokens prompt_;
  std::vector<engine::KvPolicySpec> sharing_;  // of specs, those that read the whole prompt
  DecodingSequence shared_;                    // their prefill, once one of them was opened
};

// The sources of one prompt, one for each KV type, made when first asked for.
class PromptSources {
 public:
  // References outlive the sources.
  PromptSources(const PromptTokens& prompt, const std::vector<EvalRow>& rows, CacheSet& caches)
      : prompt_(prompt), rows_(rows), caches_(caches) {}

  PromptSource& at(kernels::KvDType dtype);

 private:
  const PromptTokens& prompt_;
  const std::vector<EvalRow>& rows_;
  CacheSet& caches_;
  std::vector<std::pair<kernels::KvDType, std::unique_ptr<PromptSource>>> sources_;
};

}  // namespace headroom::profiler
