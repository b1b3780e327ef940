// A small table of shares as one SVG element: depth downwards, length to the right.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headroom::profiler {

struct HeatMap {
  std::string title;
  std::vector<int32_t> lengths;              // columns
  std::vector<std::vector<int32_t>> right;   // [depth bin][length]
  std::vector<std::vector<int32_t>> totals;  // [depth bin][length]; 0: an empty cell
};

// Each cell shows "right/total" in print and the share as the strength of its colour.
std::string SvgHeatMap(const HeatMap& map);

}  // namespace headroom::profiler
