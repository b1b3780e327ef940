#include "profiler/layer_overlap.h"

#include <bit>

#include "base/check.h"

namespace headroom::profiler {

void LayerOverlap::Add(kernels::Backend& backend, std::vector<float>& scores,
                       std::vector<float>& raw, int32_t num_columns, int32_t num_top) {
  HEADROOM_CHECK(num_top >= 1 && num_top <= num_columns);
  HEADROOM_CHECK(num_top_ == 0 || num_top_ == num_top);
  num_top_ = num_top;
  const auto width = static_cast<size_t>(num_columns);
  for (size_t i = width; i < scores.size(); ++i) {
    scores[i % width] += scores[i];
    raw[i % width] += raw[i];
  }
  std::vector<int32_t> top(static_cast<size_t>(num_top));
  backend.SelectTopK({.scores = scores.data(),
                      .tie_break = raw.data(),
                      .num_scores = num_columns,
                      .k = num_top,
                      .out = top.data()});
  std::vector<uint64_t> bits((width + 63) / 64);
  for (const int32_t slot : top) {
    bits[static_cast<size_t>(slot) / 64] |= uint64_t{1} << (slot % 64);
  }
  top_.push_back(std::move(bits));
}

std::vector<int32_t> LayerOverlap::Overlap() const {
  constexpr int64_t kMillion = 1'000'000;
  std::vector<int32_t> overlap;
  for (size_t layer = 0; layer < top_.size(); ++layer) {
    int64_t common = 0;
    for (size_t above = layer + 1; above < top_.size(); ++above) {
      for (size_t word = 0; word < top_[layer].size(); ++word) {
        common += std::popcount(top_[layer][word] & top_[above][word]);
      }
    }
    const int64_t pairs = static_cast<int64_t>(top_.size() - layer - 1) * num_top_;
    overlap.push_back(static_cast<int32_t>(pairs == 0 ? kMillion : common * kMillion / pairs));
  }
  return overlap;
}

size_t LayerOverlap::num_bytes() const {
  return top_.empty() ? 0 : top_.size() * top_.front().size() * sizeof(uint64_t);
}

}  // namespace headroom::profiler
