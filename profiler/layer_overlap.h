// LayerOverlap: how far each layer's top tokens are also those of the layers above it. Where they
// freeze, rows can stop [FastKV 2502.01068].
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/ops.h"

namespace headroom::profiler {

class LayerOverlap {
 public:
  // The next layer's `num_top` best of `num_columns` by scores of KV heads added up; scores and
  // raw (the tie break) are [KV heads, num_columns] and hold the sums afterwards.
  void Add(kernels::Backend& backend, std::vector<float>& scores, std::vector<float>& raw,
           int32_t num_columns, int32_t num_top);

  // The share of a layer's top tokens that are top tokens of a layer above, mean over those, in
  // ppm: [layers added]; 1 for the last one.
  std::vector<int32_t> Overlap() const;

  size_t num_bytes() const;

 private:
  int64_t num_top_ = 0;
  std::vector<std::vector<uint64_t>> top_;  // [layers][words], a bit for each column
};

}  // namespace headroom::profiler
