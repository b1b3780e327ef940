#include "tests/support/forward_driver.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/check.h"

namespace headroom::testing {

using engine::PrefillPhase;
using models::ForwardBatch;
using models::RowSegment;

void ForwardDriver::Open(DrivenSequence& sequence) {
  const auto num_tokens = static_cast<int32_t>(sequence.prompt.size());
  sequence.handle = cache_.Open(
      sequence.spec, {.num_tokens = num_tokens,
                      .content_end = sequence.content_end < 0 ? num_tokens : sequence.content_end,
                      .classes = sequence.classes});
}

void ForwardDriver::Close(DrivenSequence& sequence) {
  cache_.Close(sequence.handle);
  sequence.handle = -1;
}

RowSegment ForwardDriver::AddRows(DrivenSequence& sequence, ForwardBatch& batch) {
  RowSegment segment;
  segment.sequence = sequence.handle;
  segment.row_begin = static_cast<int32_t>(batch.positions.size());
  if (sequence.decoding) {
    cache_.PrepareDecode(sequence.handle,
                         sequence.feed_classes.empty()
                             ? engine::TokenClass::kOther
                             : sequence.feed_classes[static_cast<size_t>(sequence.num_fed)]);
    segment.num_rows = 1;
    segment.layer_end = model_.config().num_hidden_layers;
    batch.token_ids.push_back(sequence.feed[static_cast<size_t>(sequence.num_fed)]);
    batch.positions.push_back(cache_.decode_begin(sequence.handle) + sequence.num_fed);
    batch.logit_rows.push_back(segment.row_begin);
    return segment;
  }
  const PrefillPhase phase = cache_.phases(sequence.handle)[static_cast<size_t>(sequence.phase)];
  const auto rows = cache_.phase_rows(sequence.handle, sequence.phase);
  const auto num_rows = static_cast<int32_t>(rows.size());
  segment.num_rows = std::min(sequence.chunk, num_rows - sequence.rows_done);
  segment.layer_begin = phase.layer_begin;
  segment.layer_end = phase.layer_end;
  segment.kv_tail = phase.selects_rows;
  const bool afresh = cache_.starts_afresh(sequence.handle, sequence.phase);
  segment.from_stash = sequence.phase > 0 && !afresh;
  segment.ends_phase = sequence.rows_done + segment.num_rows == num_rows;
  for (int32_t i = 0; i < segment.num_rows; ++i) {
    const int32_t position = rows[static_cast<size_t>(sequence.rows_done + i)];
    batch.positions.push_back(afresh ? sequence.rows_done + i : position);
    batch.token_ids.push_back(sequence.prompt[static_cast<size_t>(position)]);
  }
  if (segment.ends_phase && !phase.selects_rows) {
    batch.logit_rows.push_back(segment.row_begin + segment.num_rows - 1);
  }
  return segment;
}

void ForwardDriver::Advance(DrivenSequence& sequence, const RowSegment& segment) {
  if (sequence.decoding) {
    ++sequence.num_fed;
    return;
  }
  sequence.rows_done += segment.num_rows;
  if (segment.ends_phase) {
    cache_.FinishPhase(sequence.handle, sequence.phase);
    ++sequence.phase;
    sequence.rows_done = 0;
    sequence.decoding =
        sequence.phase == static_cast<int32_t>(cache_.phases(sequence.handle).size());
  }
}

void ForwardDriver::Step(const std::vector<DrivenSequence*>& sequences) {
  ForwardBatch batch;
  std::vector<DrivenSequence*> active;
  for (DrivenSequence* sequence : sequences) {
    if (!sequence->done()) {
      active.push_back(sequence);
      batch.segments.push_back(AddRows(*sequence, batch));
    }
  }
  const auto vocab = static_cast<size_t>(model_.config().vocab_size);
  std::vector<float> logits(batch.logit_rows.size() * vocab);
  batch.logits = logits.data();
  model_.Forward(batch, store_);
  size_t logit_row = 0;
  for (size_t i = 0; i < active.size(); ++i) {
    const RowSegment& segment = batch.segments[i];
    Advance(*active[i], segment);
    const int32_t last_row = segment.row_begin + segment.num_rows - 1;
    if (logit_row < batch.logit_rows.size() && batch.logit_rows[logit_row] == last_row) {
      const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(logit_row * vocab);
      active[i]->logits.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(vocab));
      active[i]->kept.push_back(Kept(*active[i]));
      ++logit_row;
    }
  }
  const Status status = cache_.CheckInvariants();
  ASSERT_TRUE(status.ok()) << StatusMessage(status);
}

void ForwardDriver::Run(const std::vector<DrivenSequence*>& sequences) {
  while (std::any_of(sequences.begin(), sequences.end(),
                     [](const DrivenSequence* sequence) { return !sequence->done(); })) {
    Step(sequences);
    if (::testing::Test::HasFatalFailure()) {
      return;
    }
  }
}

void ForwardDriver::Prefill(DrivenSequence& sequence) {
  while (!sequence.decoding && !::testing::Test::HasFatalFailure()) {
    Step({&sequence});
  }
}

std::vector<std::vector<std::vector<int32_t>>> ForwardDriver::Kept(
    const DrivenSequence& sequence) const {
  std::vector<std::vector<std::vector<int32_t>>> kept;
  for (int32_t layer = 0; layer < model_.config().num_hidden_layers; ++layer) {
    kept.emplace_back();
    for (int32_t head = 0; head < model_.config().num_key_value_heads; ++head) {
      kept.back().push_back(cache_.Snapshot(sequence.handle, layer, head).positions);
    }
  }
  return kept;
}

int32_t NextToken(ForwardDriver& driver, const engine::KvPolicySpec& spec,
                  const std::vector<int32_t>& prompt) {
  DrivenSequence sequence;
  sequence.prompt.assign(prompt.begin(), prompt.end() - 1);
  sequence.feed = {prompt.back()};
  sequence.spec = spec;
  sequence.chunk = 512;
  driver.Open(sequence);
  driver.Run({&sequence});
  const std::vector<float>& logits = sequence.logits.back();
  driver.Close(sequence);
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace headroom::testing
