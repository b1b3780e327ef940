// SequenceRunner: one sequence at a time through a model and a KV cache, without the engine.
//
// The rows are those that the engine would run, in chunks of up to `max_rows`; by the invariance
// contract their results are the engine's, bit for bit. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/kv/kv_cache.h"
#include "engine/token_classes.h"
#include "models/model.h"

namespace headroom::profiler {

// A prompt as token ids.
struct PromptTokens {
  std::vector<int32_t> ids;
  int32_t content_end = 0;  // one past the last content token: ids.size() without a template
};

// A sequence whose prompt is in the cache. Closed by SequenceRunner::Close.
struct DecodingSequence {
  int32_t handle = -1;
  int32_t next_position = 0;  // of the next token that is fed
  // Whether decode may evict, so that every row needs its own forward pass.
  bool row_by_row = false;
  std::vector<float> last_logits;  // [vocab], of the newest row
};

class SequenceRunner {
 public:
  // `model` was made for at least `max_rows` rows and as many rows of logits. References outlive
  // the runner. The pool must hold what is run (CacheSet sizes it so). `token_classes` of the
  // vocabulary may be null: then policies take every token for an ordinary one.
  SequenceRunner(models::Model& model, engine::KvCache& cache, int32_t max_rows,
                 engine::TokenClasses token_classes = nullptr);

  // Opens a sequence under `spec`, which passed the policy's Validate, and runs all of its phases.
  DecodingSequence Prefill(const PromptTokens& prompt, const engine::KvPolicySpec& spec);

  // Whether `spec` lets every row of the prompt through all layers, in one phase: only then can its
  // sequence be made of a source.
  bool ReadsWhole(const PromptTokens& prompt, const engine::KvPolicySpec& spec);
  // Reads the prompt once for OpenFrom under `specs`, each of which reads it whole. The source is
  // closed like a sequence, but feeds nothing.
  DecodingSequence PrefillSource(const PromptTokens& prompt,
                                 std::span<const engine::KvPolicySpec> specs);
  // What Prefill would give under `spec`, one of the source's, without a forward pass.
  DecodingSequence OpenFrom(const DecodingSequence& source, const engine::KvPolicySpec& spec);

  // Runs `tokens` behind what the sequence holds. `logits` gets [tokens.size(), vocab], the row
  // after each of them; last_logits becomes the last row.
  void Feed(DecodingSequence& sequence, std::span<const int32_t> tokens,
            std::vector<float>* logits);

  // A second sequence that goes on from where this one stands; the caller closes both.
  DecodingSequence Fork(const DecodingSequence& sequence);

  // The sum of log p of each candidate's tokens behind `sequence`, which stays as it is:
  // [candidates]. No candidate is empty.
  std::vector<double> ScoreCandidates(const DecodingSequence& sequence,
                                      const std::vector<std::vector<int32_t>>& candidates);

  void Close(DecodingSequence& sequence);

  engine::KvCache& cache() { return cache_; }
  int32_t vocab_size() const { return model_.config().vocab_size; }

 private:
  engine::PromptInfo InfoOf(const PromptTokens& prompt) const;
  // Runs all phases of a sequence that the cache has just opened.
  DecodingSequence RunPhases(const PromptTokens& prompt, int32_t handle);
  // One chunk of a phase, from row `begin` of the phase on; returns its rows.
  int32_t RunChunk(const PromptTokens& prompt, int32_t phase, int32_t begin,
                   DecodingSequence& sequence);
  void FeedRows(DecodingSequence& sequence, std::span<const int32_t> tokens, float* logits);

  models::Model& model_;
  engine::KvCache& cache_;
  const int32_t max_rows_;
  const engine::TokenClasses token_classes_;  // [vocab] or null
};

}  // namespace headroom::profiler
