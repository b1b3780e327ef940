#include "engine/batch_builder.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"

namespace headroom::engine {
namespace {

models::RowSegment MakeSegment(int32_t num_layers, const KvCache& cache, const StepRows& rows) {
  const Sequence& sequence = *rows.sequence;
  models::RowSegment segment;
  segment.sequence = rows.choice == nullptr ? sequence.handle : rows.choice->handle;
  segment.num_rows = rows.num_rows;
  segment.layer_end = num_layers;
  if (rows.choice == nullptr) {
    const PrefillPhase& phase = cache.phases(sequence.handle)[static_cast<size_t>(sequence.phase)];
    const auto phase_rows =
        static_cast<int64_t>(cache.phase_rows(sequence.handle, sequence.phase).size());
    segment.layer_begin = phase.layer_begin;
    segment.layer_end = phase.layer_end;
    segment.kv_tail = phase.selects_rows;
    segment.from_stash =
        sequence.phase > 0 && !cache.starts_afresh(sequence.handle, sequence.phase);
    segment.ends_phase = sequence.phase_rows_done + rows.num_rows == phase_rows;
    HEADROOM_CHECK(sequence.phase_rows_done + rows.num_rows <= phase_rows);
  }
  return segment;
}

}  // namespace

models::ForwardBatch& BatchBuilder::Build(int32_t num_layers, const KvCache& cache,
                                          std::vector<StepRows>& rows) {
  batch_.token_ids.clear();
  batch_.positions.clear();
  batch_.segments.clear();
  batch_.logit_rows.clear();
  batch_.logits = nullptr;
  for (StepRows& entry : rows) {
    entry.segment = MakeSegment(num_layers, cache, entry);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const StepRows& a, const StepRows& b) {
    return std::tie(a.segment.layer_begin, a.segment.layer_end) <
           std::tie(b.segment.layer_begin, b.segment.layer_end);
  });
  for (StepRows& entry : rows) {
    entry.segment.row_begin = static_cast<int32_t>(batch_.token_ids.size());
    if (entry.choice == nullptr) {
      AddPrefill(cache, entry);
    } else {
      AddDecode(cache, entry);
    }
    // Only a prompt's last row and a decode row have logits.
    const bool wants_logits = entry.segment.layer_end == num_layers && !entry.segment.kv_tail &&
                              (entry.choice != nullptr ? !entry.replays : entry.segment.ends_phase);
    entry.logit_index = -1;
    if (wants_logits) {
      entry.logit_index = static_cast<int32_t>(batch_.logit_rows.size());
      batch_.logit_rows.push_back(static_cast<int32_t>(batch_.token_ids.size()) - 1);
    }
    batch_.segments.push_back(entry.segment);
  }
  return batch_;
}

void BatchBuilder::AddPrefill(const KvCache& cache, StepRows& rows) {
  const Sequence& sequence = *rows.sequence;
  const std::span<const int32_t> positions =
      cache.phase_rows(sequence.handle, sequence.phase)
          .subspan(static_cast<size_t>(sequence.phase_rows_done),
                   static_cast<size_t>(rows.num_rows));
  const bool afresh = cache.starts_afresh(sequence.handle, sequence.phase);
  auto next = static_cast<int32_t>(sequence.phase_rows_done);
  for (const int32_t position : positions) {
    batch_.token_ids.push_back(sequence.request->prompt_ids[static_cast<size_t>(position)]);
    batch_.positions.push_back(afresh ? next++ : position);
  }
}

void BatchBuilder::AddDecode(const KvCache& cache, StepRows& rows) {
  const Choice& choice = *rows.choice;
  const int64_t first = cache.num_decoded(choice.handle);
  HEADROOM_CHECK(first + rows.num_rows <= choice.num_generated());
  HEADROOM_CHECK(rows.replays || first + 1 == choice.num_generated());
  for (int64_t row = first; row < first + rows.num_rows; ++row) {
    // The logical position goes on after the prompt, whatever was evicted.
    batch_.token_ids.push_back(choice.generated[static_cast<size_t>(row)]);
    batch_.positions.push_back(cache.decode_begin(choice.handle) + static_cast<int32_t>(row));
  }
}

}  // namespace headroom::engine
