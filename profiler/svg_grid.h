// A grid of heads as one SVG element: layers across, heads of a layer down.
#pragma once

#include <string>
#include <vector>

namespace headroom::profiler {

struct GridCell {
  std::string fill = "none";  // a CSS colour: "var(--t3)"
  double opacity = 1.0;
  bool is_marked = false;           // outlined
  std::string text;                 // one or two letters
  std::vector<std::string> strips;  // fills of narrow parts below: a query head each
  std::string tooltip;
};

struct HeadGrid {
  std::string title;
  int num_layers = 0;
  int num_heads = 0;            // of a layer
  std::vector<GridCell> cells;  // [layers, heads]
  int ruled_layer = -1;         // a line behind this layer; -1: none
};

std::string SvgGrid(const HeadGrid& grid);

}  // namespace headroom::profiler
