// What one forward pass runs: rows, grouped into segments that each carry a layer range.
//
// Built by the engine from a StepPlan; plain data, valid for one call.
#pragma once

#include <cstdint>
#include <vector>

namespace headroom::models {

// Consecutive rows of one sequence. A prompt chunk below the TSP layer runs [0, T) with kv_tail,
// the surviving rows [T, L) with from_stash, decode rows and plain prompts [0, L).
struct RowSegment {
  int32_t sequence = 0;     // the KvStore's handle
  int32_t row_begin = 0;    // into ForwardBatch::token_ids
  int32_t num_rows = 0;     // >= 1
  int32_t layer_begin = 0;  // layers [layer_begin, layer_end) run whole
  int32_t layer_end = 0;
  // Also project K and V (and queries) at layer `layer_end`, store them, and hand the rows that
  // enter it to KvStore::StashRows.
  bool kv_tail = false;
  // The rows enter at layer_begin from KvStore::LoadStash, and K and V of layer_begin are stored
  // already (by an earlier segment's kv_tail). Otherwise layer_begin is 0 and rows are embedded.
  bool from_stash = false;
  // The last chunk of a prefill phase: KvStore::FinishLayer is called after each layer.
  bool ends_phase = false;
};

struct ForwardBatch {
  std::vector<int32_t> token_ids;  // [rows]; not read for rows of from_stash segments
  std::vector<int32_t> positions;  // [rows], logical positions, ascending within a segment
  std::vector<RowSegment> segments;  // rows ascending, no gaps
  std::vector<int32_t> logit_rows;   // rows whose logits are wanted; their segment reaches L
  float* logits = nullptr;           // [logit_rows.size(), vocab], filled by Forward
};

}  // namespace headroom::models
