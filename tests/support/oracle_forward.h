// The forward pass in double precision, written from its definition, with an explicit mask: what
// eviction has to equal. No pages, no chunks, no kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ops.h"
#include "models/loaded_model.h"

namespace headroom::testing {

// From `layer` on only `rows` of the prompt run, and layers above it hold only those.
struct RowDrop {
  int32_t layer = 0;
  std::vector<int32_t> rows;  // prompt positions, ascending
};

struct OracleInput {
  std::vector<int32_t> tokens;  // [M], prompt then decode rows
  int32_t num_prompt = 0;       // N
  std::vector<RowDrop> drops;   // layers ascending
  // Keys and values are rounded as a cache of this dtype rounds them.
  kernels::KvDType kv_dtype = kernels::KvDType::kF32;
  // Positions that decode row N + t sees, [t][layer][kv head], its own included.
  std::vector<std::vector<std::vector<std::vector<int32_t>>>> seen;
};

// Logits of the last prompt row and of each decode row, [M - N + 1][vocab]. Weights are f32.
std::vector<std::vector<double>> OracleLogits(const models::LoadedModel& model,
                                              const OracleInput& input);

}  // namespace headroom::testing
