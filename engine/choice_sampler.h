// The next token of a choice, and the event that tells of it. Engine thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sampler.h"
#include "engine/sequence.h"

namespace headroom::engine {

// Whether penalties need to know which tokens were generated.
bool CountsGenerated(const SamplingParams& params);

class ChoiceSampler {
 public:
  explicit ChoiceSampler(int32_t vocab_size) : vocab_size_(vocab_size), sampler_(vocab_size) {}

  // Samples from `logits` [vocab] and takes the token into `choice`. kTokens, or kFinished when it
  // ends the choice (trace, usage and receipt are not set).
  RequestEvent Next(const StopCriteria& stop, std::span<const float> logits, Choice& choice);

 private:
  // Every token but those that would end the text too early; empty: all.
  std::span<const uint64_t> AllowedTokens(const StopCriteria& stop, int32_t num_generated);

  const int32_t vocab_size_;
  Sampler sampler_;
  std::vector<uint64_t> allowed_;  // [ceil(vocab / 64)]
};

}  // namespace headroom::engine
