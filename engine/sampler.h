// Next token from one row of logits.
//
// Pure: the result depends on the logits, the parameters, the tokens seen so far and (seed, choice,
// token index) alone. Order of transforms: penalties and bias, logprobs are taken from the raw
// logits, temperature, top-k, min-p, top-p, then one Philox draw. Greedy takes the largest logit,
// ties to the lowest id. NaN logits are below every number, -inf included, and are never drawn
// while there is a finite one. Each of the three filters sees the distribution that the one before
// it left, renormalised. Ties at a cut go to the lower id. The draw takes the first token, by id,
// at which the cumulated probability exceeds a uniform number in [0, 1).
//
// Time is linear in the vocabulary: selections are by nth_element, nothing is fully sorted.
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
  Entry& FindOrAdd(int32_t id);

  std::vector<Entry> entries_;  // one per distinct token, first seen first
  std::vector<int32_t> index_;  // token -> entry + 1, grown on demand
};

class Sampler {
 public:
  explicit Sampler(int32_t vocab_size);

  // `logits` [vocab_size] is not changed. `token_index` counts generated tokens of the sequence.
  // `allowed`, when not empty, is a bitset over the vocabulary [ceil(vocab / 64)]; one that allows
  // nothing is ignored.
  SampledToken Sample(std::span<const float> logits, const SamplingParams& params,
                      const TokenHistory& history, uint64_t token_index,
                      std::span<const uint64_t> allowed = {});

 private:
  struct Candidate {
    double weight = 0.0;  // exp((logit - largest) / temperature)
    float logit = 0.0f;   // penalties and bias applied
    int32_t token = 0;
    static bool Before(const Candidate& a, const Candidate& b);
  };
  int32_t Draw(std::span<const float> logits, int32_t best, const SamplingParams& params,
               uint64_t token_index);
  void CollectCandidates(std::span<const float> logits, float max, const SamplingParams& params);
  void CutBehind(const Candidate& cut);
  void KeepTopK(int32_t top_k);
  void KeepTopP(float top_p);
  void AddLogprobs(std::span<const float> logits, int32_t num_logprobs, SampledToken& result);

  int32_t vocab_size_;
  std::vector<float> scratch_;         // [vocab_size], adjusted logits
  std::vector<Candidate> candidates_;  // at most vocab_size, by token id
  std::vector<Candidate> selection_;   // scratch of the selections
};

}  // namespace headroom::engine
