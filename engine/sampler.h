// Next token from one row of logits.
//
// Pure: the result depends on the logits, the parameters, the tokens seen so far and (seed, choice,
// token index) alone. Order of transforms: penalties and bias, logprobs are taken from the raw
// logits, temperature, top-k, min-p, top-p, then one Philox draw. Greedy takes the largest logit,
// ties to the lowest id. NaN logits are below every number.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/request.h"

namespace headroom::engine {

// How often each token was seen, for penalties; one per sequence.
class TokenHistory {
 public:
  void AddPrompt(std::span<const int32_t> ids);
  void AddGenerated(int32_t id);

  struct Entry {
    int32_t token = 0;
    int32_t generated = 0;  // times generated
  };
  std::span<const Entry> entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;        // one per distinct token, first seen first
  std::vector<int32_t> index_;        // token -> entry + 1, grown on demand
};

class Sampler {
 public:
  explicit Sampler(int32_t vocab_size);

  // `logits` [vocab_size] is not changed. `token_index` counts generated tokens of the sequence.
  // `allowed`, when not empty, is a bitset over the vocabulary [ceil(vocab / 64)].
  SampledToken Sample(std::span<const float> logits, const SamplingParams& params,
                      const TokenHistory& history, uint64_t token_index,
                      std::span<const uint64_t> allowed = {});

 private:
  int32_t vocab_size_;
  std::vector<float> scratch_;  // [vocab_size]
  std::vector<int32_t> order_;  // candidates
};

}  // namespace headroom::engine
