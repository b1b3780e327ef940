// PromptSource: one prompt that is opened under many policies.
//
// The one place that decides how a policy's sequence comes about, so that callers need not know
// whether a prefill ran for it.
#pragma once

#include "profiler/evaluation/sequence_runner.h"

namespace headroom::profiler {

class PromptSource {
 public:
  // `runner` outlives the source.
  PromptSource(SequenceRunner& runner, PromptTokens prompt);

  // The prompt in the cache under `spec`, ready to decode; the caller closes it. The same as a
  // prefill under `spec`, bit for bit.
  DecodingSequence Open(const engine::KvPolicySpec& spec);

  const PromptTokens& prompt() const { return prompt_; }

 private:
  SequenceRunner& runner_;
  const PromptTokens prompt_;
};

}  // namespace headroom::profiler
