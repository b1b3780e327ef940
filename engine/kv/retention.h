// RetentionExecutor: turns a plan and scores into the slots that stay.
//
// Order of every selection: pooled score, then unpooled score, then the lower slot; a NaN never
// wins. Must-keep slots are taken first and never compete.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/kv/policy.h"
#include "kernels/ops.h"

namespace headroom::engine {

// Scores of one layer; slots at num_columns and above have none.
struct LayerScores {
  int32_t num_columns = 0;
  std::vector<float> pooled;  // [num_kv_heads, num_columns]
  std::vector<float> raw;     // [num_kv_heads, num_columns]
};

// Scores of one head, or of several that follow each other.
struct ScoreColumns {
  int32_t num_columns = 0;        // 0: nothing is scored
  const float* pooled = nullptr;  // [num_columns]
  const float* raw = nullptr;     // [num_columns]
};

class RetentionExecutor {
 public:
  explicit RetentionExecutor(kernels::Backend& backend) : backend_(backend) {}

  // The slots of every head that stay, ascending; heads of plans with rungs are left as they are
  // (LadderExecutor chooses for them). `scores` may be null when the plan needs none; `classes`
  // [num_slots] may be empty: every slot is kOther.
  void SelectLayer(const LayerPlan& plan, int32_t num_slots, const LayerScores* scores,
                   std::span<const TokenClass> classes, std::vector<std::vector<int32_t>>& kept);

  // The slots of one head that stay, ascending, plan.num_entries of them.
  void SelectHead(const HeadPlan& plan, int32_t num_slots, const LayerScores* scores,
                  int32_t kv_head, std::vector<int32_t>& kept);

  // A head of a layer pool alone: its must-keep and quota slots and the best others until there are
  // `num_entries`, or as many as must stay.
  void SelectAlone(const HeadPlan& plan, int32_t num_slots, int32_t num_entries,
                   const LayerScores* scores, std::span<const TokenClass> classes, int32_t kv_head,
                   std::vector<int32_t>& kept);

  // The rows that go on above the TSP layer, ascending, plan.num_rows of them: scores are summed
  // over the KV heads, in their order.
  void SelectRows(const TspPlan& plan, int32_t num_slots, const LayerScores* scores,
                  std::span<const TokenClass> classes, int32_t num_kv_heads,
                  std::vector<int32_t>& rows);

 private:
  // Heads that share a pool: safe slots first, then the best pairs of head and slot.
  void SelectFromPool(const LayerPlan& plan, int32_t num_slots, const LayerScores* scores,
                      std::span<const TokenClass> classes, std::vector<std::vector<int32_t>>& kept);
  // Gives up to `left` of the pairs that are not taken_ to their heads; how many it gave.
  int32_t Contest(const LayerPlan& plan, const ScoreColumns& scores, size_t num_columns,
                  int32_t left, std::vector<std::vector<int32_t>>& kept);
  // Marks a pool head's must-keep slots and quotas, then the best until `num_entries` are marked:
  // `kept`.
  void SelectSafe(const HeadPlan& plan, int32_t num_slots, int32_t num_entries,
                  const ScoreColumns& scores, std::span<const TokenClass> classes,
                  std::vector<int32_t>& kept);
  // Marks the `count` newest or oldest slots that are not marked, and the best so many that are
  // punctuation or are not.
  void MarkNewest(int32_t count);
  void MarkOldest(int32_t count);
  void MarkBestOf(bool punctuation, int32_t count, const ScoreColumns& scores,
                  std::span<const TokenClass> classes);
  // Marks slots that are no punctuation until `num_entries` are marked, the best first, or all.
  void MarkContent(int32_t num_entries, const ScoreColumns& scores,
                   std::span<const TokenClass> classes);
  // The scores of all heads times their weights; the scores themselves where all weigh 1.
  ScoreColumns Weigh(const LayerPlan& plan, const LayerScores& scores);
  // The heads' scores added up, in pooled_sum_ and raw_sum_.
  ScoreColumns SumHeads(const LayerScores& scores, int32_t num_kv_heads);
  void MarkKept(int32_t num_slots, int32_t sink_slots, int32_t recent_slots,
                const std::vector<int32_t>& keep_slots);
  void Fill(int32_t num_slots, int32_t num_entries, const ScoreColumns& scores,
            std::vector<int32_t>& kept);

  kernels::Backend& backend_;
  std::vector<uint8_t> must_keep_;  // [num_slots]
  std::vector<uint8_t> skip_;       // [num_columns], not of a class
  std::vector<uint8_t> taken_;      // [num_kv_heads, num_columns], by a pool
  LayerScores weighted_;            // of a pool
  std::vector<int32_t> winners_;
  std::vector<float> pooled_sum_;  // [num_columns]
  std::vector<float> raw_sum_;     // [num_columns]
};

}  // namespace headroom::engine
