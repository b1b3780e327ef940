// LadderExecutor: the cheapest rung of a head whose kept mass is enough [FastGen, 2310.01801].
//
// Mass of a rung = attention that the observed rows give to its set, averaged over the rows: kept
// columns count whole, a local window moves with the row. Masses are sums of whole numbers, so that
// they do not depend on chunks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/kv/column_sums.h"
#include "engine/kv/policy.h"
#include "engine/kv/retention.h"
#include "kernels/ops.h"

namespace headroom::engine {

// What the ladders of one layer read.
struct LadderInput {
  int32_t num_slots = 0;                // N
  int32_t group_size = 1;               // query heads per KV head
  const LayerScores* scores = nullptr;  // heavy columns are the best of these
  const ColumnSums* mass = nullptr;     // per query head, with near sums
  int32_t num_mass_rows = 0;            // rows behind `mass`
  std::span<const TokenClass> classes;  // [num_slots]; empty: every token is kOther
};

class LadderExecutor {
 public:
  explicit LadderExecutor(kernels::Backend& backend) : backend_(backend) {}

  // Climbs `plan.rungs` for one KV head and returns the rung; their number: all slots stay. `kept`
  // gets the slots, ascending.
  int32_t Select(const HeadPlan& plan, const LadderInput& input, int32_t kv_head,
                 std::vector<int32_t>& kept);

  // Mass of one rung for one query head, in [0, 1], and the slots of that rung.
  double Mass(const HeadPlan& plan, const LadderInput& input, int32_t rung, int32_t query_head);
  const std::vector<int32_t>& RungSlots(const HeadPlan& plan, const LadderInput& input,
                                        int32_t rung, int32_t kv_head);

 private:
  // Marks the columns of a rung that stand still in kept_columns_.
  void Mark(const HeadPlan& plan, const LadderInput& input, int32_t rung, int32_t kv_head);
  int64_t MassUnits(const HeadPlan& plan, const LadderInput& input, int32_t rung,
                    int32_t query_head) const;

  kernels::Backend& backend_;
  std::vector<uint8_t> kept_columns_;  // [num_slots], the sets that stand still
  std::vector<uint8_t> skip_;          // [num_slots], may not be heavy
  std::vector<int32_t> heavy_;
  std::vector<int32_t> slots_;
};

}  // namespace headroom::engine
