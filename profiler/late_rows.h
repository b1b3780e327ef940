// LateRows: what the rungs keep for single rows, the last of a prompt, each exactly. A mean over
// rows hides rows that need what the others do not: nine of ten should be held too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "profiler/rung_sets.h"

namespace headroom::profiler {

class LateRows {
 public:
  // `sets` outlives it.
  LateRows(const RungSets& sets, int32_t num_kv_heads, int32_t group_size);

  // Takes over what the rungs keep of the KV head that was ranked last.
  void SetHead(int32_t kv_head);
  // Probabilities of a row, once every head is set: [query heads, num_tokens], of which the row
  // sees the first `visible`.
  void AddRow(std::span<const int64_t> probabilities, int32_t visible);
  // Of each KV head and rung the mass that nine of ten rows reach, for the neediest query head, in
  // ppm: [KV heads, rungs]. Forgets the rows.
  void Finish(int32_t* p10_ppm);

  size_t num_bytes() const;

 private:
  const RungSets& sets_;
  const int32_t group_size_;
  std::vector<RungSets::Patterns> patterns_;  // [KV heads]
  std::vector<std::vector<int32_t>> masses_;  // [KV heads * rungs][rows]
  std::vector<int32_t> least_;                // scratch, [rungs]
  std::vector<int32_t> of_head_;
};

}  // namespace headroom::profiler
