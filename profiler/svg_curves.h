// Lines over a linear or logarithmic axis as one SVG element, for pages of the profiler.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace headroom::profiler {

struct Curve {
  std::string name;    // legend; empty: no entry
  std::string colour;  // CSS: "var(--t3)"
  bool is_dashed = false;
  bool has_line = true;                                // else dots alone, where there are tooltips
  std::vector<std::pair<double, double>> points = {};  // x ascending
  std::vector<std::string> tooltips = {};              // one a point, or empty
};

struct CurvePlot {
  std::string title;
  std::string x_label;
  std::string y_label;
  bool x_is_log = false;  // powers of two
  double x_low = 0.0;
  double x_high = 1.0;
  double y_low = 0.0;
  double y_high = 1.0;
  int width = 470;
  double x_mark = -1.0;  // a vertical rule; below x_low: none
  double y_mark = -1.0;  // a horizontal rule; below y_low: none
  std::vector<Curve> curves;
};

std::string SvgCurves(const CurvePlot& plot);

}  // namespace headroom::profiler
