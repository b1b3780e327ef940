#include "profiler/evaluation/sequence_runner.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "profiler/evaluation/token_metrics.h"

namespace headroom::profiler {

using engine::PrefillPhase;
using models::ForwardBatch;
using models::RowSegment;

SequenceRunner::SequenceRunner(models::Model& model, engine::KvCache& cache, int32_t max_rows,
                               engine::TokenClasses token_classes)
    : model_(model), cache_(cache), max_rows_(max_rows), token_classes_(std::move(token_classes)) {
  HEADROOM_CHECK(max_rows >= 1);
}

DecodingSequence SequenceRunner::Prefill(const PromptTokens& prompt,
                                         const engine::KvPolicySpec& spec) {
  DecodingSequence sequence = RunPhases(prompt, cache_.Open(spec, InfoOf(prompt)));
  sequence.row_by_row = spec.decode != engine::KvDecode::kGrow;
  return sequence;
}

bool SequenceRunner::ReadsWhole(const PromptTokens& prompt, const engine::KvPolicySpec& spec) {
  // The cache plans a sequence when it opens it; pages are taken by rows alone.
  const int32_t handle = cache_.Open(spec, InfoOf(prompt));
  const bool one_phase = cache_.phases(handle).size() == 1;
  cache_.Close(handle);
  return one_phase;
}

DecodingSequence SequenceRunner::PrefillSource(const PromptTokens& prompt,
                                               std::span<const engine::KvPolicySpec> specs) {
  return RunPhases(prompt, cache_.OpenSource(specs, InfoOf(prompt)));
}

DecodingSequence SequenceRunner::OpenFrom(const DecodingSequence& source,
                                          const engine::KvPolicySpec& spec) {
  const StatusOr<int32_t> handle = cache_.OpenFrom(source.handle, spec);
  HEADROOM_CHECK(handle.ok());
  DecodingSequence sequence = source;  // no eviction touches the logits of a prefill
  sequence.handle = *handle;
  sequence.row_by_row = spec.decode != engine::KvDecode::kGrow;
  return sequence;
}

engine::PromptInfo SequenceRunner::InfoOf(const PromptTokens& prompt) const {
  return {.num_tokens = static_cast<int32_t>(prompt.ids.size()),
          .content_end = prompt.content_end,
          .classes = engine::ClassifyPrompt(token_classes_, prompt.ids)};
}

DecodingSequence SequenceRunner::RunPhases(const PromptTokens& prompt, int32_t handle) {
  DecodingSequence sequence;
  sequence.handle = handle;
  sequence.next_position = cache_.decode_begin(handle);
  sequence.last_logits.resize(static_cast<size_t>(vocab_size()));
  const auto num_phases = static_cast<int32_t>(cache_.phases(sequence.handle).size());
  for (int32_t phase = 0; phase < num_phases; ++phase) {
    const auto num_rows = static_cast<int32_t>(cache_.phase_rows(sequence.handle, phase).size());
    for (int32_t begin = 0; begin < num_rows;) {
      begin += RunChunk(prompt, phase, begin, sequence);
    }
    cache_.FinishPhase(sequence.handle, phase);
  }
  return sequence;
}

int32_t SequenceRunner::RunChunk(const PromptTokens& prompt, int32_t phase_index, int32_t begin,
                                 DecodingSequence& sequence) {
  const PrefillPhase phase = cache_.phases(sequence.handle)[static_cast<size_t>(phase_index)];
  const std::span<const int32_t> rows = cache_.phase_rows(sequence.handle, phase_index);
  RowSegment segment;
  segment.sequence = sequence.handle;
  segment.num_rows = std::min(max_rows_, static_cast<int32_t>(rows.size()) - begin);
  segment.layer_begin = phase.layer_begin;
  segment.layer_end = phase.layer_end;
  segment.kv_tail = phase.selects_rows;
  const bool afresh = cache_.starts_afresh(sequence.handle, phase_index);
  segment.from_stash = phase_index > 0 && !afresh;
  segment.ends_phase = begin + segment.num_rows == static_cast<int32_t>(rows.size());
  ForwardBatch batch;
  for (int32_t i = begin; i < begin + segment.num_rows; ++i) {
    const int32_t position = rows[static_cast<size_t>(i)];
    batch.positions.push_back(afresh ? i : position);
    batch.token_ids.push_back(prompt.ids[static_cast<size_t>(position)]);
  }
  if (segment.ends_phase && !phase.selects_rows) {
    batch.logit_rows.push_back(segment.num_rows - 1);
    batch.logits = sequence.last_logits.data();
  }
  batch.segments.push_back(segment);
  model_.Forward(batch, cache_);
  return segment.num_rows;
}

void SequenceRunner::Feed(DecodingSequence& sequence, std::span<const int32_t> tokens,
                          std::vector<float>* logits) {
  const auto vocab = static_cast<size_t>(vocab_size());
  logits->resize(tokens.size() * vocab);
  const size_t most = sequence.row_by_row ? 1 : static_cast<size_t>(max_rows_);
  for (size_t begin = 0; begin < tokens.size(); begin += most) {
    FeedRows(sequence, tokens.subspan(begin, std::min(most, tokens.size() - begin)),
             logits->data() + begin * vocab);
  }
  if (!tokens.empty()) {
    std::copy(logits->end() - static_cast<std::ptrdiff_t>(vocab), logits->end(),
              sequence.last_logits.begin());
  }
}

void SequenceRunner::FeedRows(DecodingSequence& sequence, std::span<const int32_t> tokens,
                              float* logits) {
  const auto token = static_cast<size_t>(tokens.front());
  const bool known = token_classes_ != nullptr && token < token_classes_->size();
  cache_.PrepareDecode(sequence.handle,
                       known ? (*token_classes_)[token] : engine::TokenClass::kOther);
  ForwardBatch batch;
  RowSegment segment;
  segment.sequence = sequence.handle;
  segment.num_rows = static_cast<int32_t>(tokens.size());
  segment.layer_end = model_.config().num_hidden_layers;
  for (int32_t i = 0; i < segment.num_rows; ++i) {
    batch.token_ids.push_back(tokens[static_cast<size_t>(i)]);
    batch.positions.push_back(sequence.next_position + i);
    batch.logit_rows.push_back(i);
  }
  batch.segments.push_back(segment);
  batch.logits = logits;
  model_.Forward(batch, cache_);
  sequence.next_position += segment.num_rows;
}

DecodingSequence SequenceRunner::Fork(const DecodingSequence& sequence) {
  DecodingSequence fork = sequence;
  fork.handle = cache_.Fork(sequence.handle);
  return fork;
}

std::vector<double> SequenceRunner::ScoreCandidates(
    const DecodingSequence& sequence, const std::vector<std::vector<int32_t>>& candidates) {
  const auto vocab = static_cast<size_t>(vocab_size());
  std::vector<double> scores;
  std::vector<float> logits;
  for (const std::vector<int32_t>& candidate : candidates) {
    double score = -TokenNll(sequence.last_logits, candidate.front());
    DecodingSequence fork = Fork(sequence);
    Feed(fork, std::span<const int32_t>(candidate).first(candidate.size() - 1), &logits);
    for (size_t i = 1; i < candidate.size(); ++i) {
      score -=
          TokenNll(std::span<const float>(logits).subspan((i - 1) * vocab, vocab), candidate[i]);
    }
    Close(fork);
    scores.push_back(score);
  }
  return scores;
}

void SequenceRunner::Close(DecodingSequence& sequence) {
  if (sequence.handle >= 0) {
    cache_.Close(sequence.handle);
    sequence.handle = -1;
  }
}

}  // namespace headroom::profiler
