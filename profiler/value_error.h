// How far the attention output of single rows moves when only a rung's slots are kept: mass alone
// misranks heads whose values differ in length.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "profiler/rung_sets.h"

namespace headroom::profiler {

// Errors of one KV head, added up over rows. |o_C - o| / |o|, where o is the row's output and o_C
// that of the kept slots, renormalised; through V only, not through the output projection.
class ValueErrors {
 public:
  // `values` of the head's slots, [num_tokens, head_dim], outlive the object.
  ValueErrors(const RungSets& sets, std::span<const float> values, int32_t head_dim,
              int32_t group_size);

  // Row `row` of the prompt: probabilities of slots [0, row] for each query head of the group, in
  // kernels::kColumnUnit, head g at probabilities + g * stride.
  void AddRow(int32_t row, const int64_t* probabilities, int64_t stride);

  // Of the neediest query head of the group: the mean over rows in ppm, at most 1: [rungs].
  void Write(int32_t* error_ppm) const;

 private:
  // Slots that the same rungs keep are summed together.
  void FindAtoms(int32_t row);
  void AddQueryHead(const int64_t* probabilities, size_t query_head);

  const RungSets& sets_;
  const std::span<const float> values_;
  const size_t head_dim_;
  int32_t num_rows_ = 0;
  std::vector<double> errors_;       // [group, rungs], sums over rows
  std::vector<uint64_t> atoms_;      // rungs that keep an atom's slots
  std::vector<uint32_t> atom_of_;    // [row + 1]
  std::vector<float> outputs_;       // [atoms, head_dim]
  std::vector<double> atom_masses_;  // [atoms]
};

}  // namespace headroom::profiler
