// Column sums of one layer: what every slot got from the query rows that a policy looks at.
//
// Whole numbers (kernels::ColumnScores), so that the sums do not depend on how rows are cut into
// chunks. They become floats once, when the layer is scored.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/kv/policy.h"
#include "engine/kv/retention.h"
#include "kernels/ops.h"

namespace headroom::engine {

struct ColumnSums {
  int32_t num_heads = 0;      // query heads or KV heads, as ColumnNeeds says
  int32_t num_slots = 0;      // N
  std::vector<int64_t> sums;  // [num_heads, num_slots]; empty until the first row
  std::vector<int64_t> near;  // the same over each row's last near_slots slots; may be empty
};

// Rows [row_begin, row_begin + num_rows) of the prompt and their queries.
struct QueryRows {
  const float* queries = nullptr;  // [num_rows, stride]
  int64_t stride = 0;
  int32_t row_begin = 0;
  int32_t num_rows = 0;
};

// Whether row `row` of `num_tokens` is looked at.
bool IsObserved(const ColumnNeeds& needs, int32_t num_tokens, int32_t row);
// Rows that are looked at, and those of them that see slot `slot` of a layer of all rows.
int32_t NumObservedRows(const ColumnNeeds& needs, int32_t num_tokens);
std::vector<int32_t> NumObservers(const ColumnNeeds& needs, int32_t num_tokens);  // [num_tokens]

// Adds what the observed ones of `rows` give. `heads` hold slots 0 up to the last row, at least.
void AddColumnSums(kernels::Backend& backend, const kernels::KvArena& arena, float scale,
                   std::span<const kernels::KvHeadView> heads, const ColumnNeeds& needs,
                   int32_t num_tokens, const QueryRows& rows, ColumnSums& sums);

// The sums of each KV head, query heads of a group added, as scores of all slots in units of one
// observing row's whole attention (of one count for kAboveMean): `mean` divides each by the rows
// that see the slot. The part of a sum that f32 cannot hold becomes the tie break.
void ColumnsToScores(const ColumnSums& sums, const ColumnNeeds& needs, int32_t num_kv_heads,
                     bool mean, LayerScores& scores);

}  // namespace headroom::engine
