#include "profiler/evaluation/prompt_source.h"

#include <utility>

namespace headroom::profiler {

PromptSource::PromptSource(SequenceRunner& runner, PromptTokens prompt)
    : runner_(runner), prompt_(std::move(prompt)) {}

DecodingSequence PromptSource::Open(const engine::KvPolicySpec& spec) {
  return runner_.Prefill(prompt_, spec);
}

}  // namespace headroom::profiler
