// A scatter plot of series with intervals, as one SVG element.
//
// Series differ by colour, by the shape of their markers, filled or hollow, and by the dashes of
// their lines; every point carries its label in print and as a tooltip. Colours are the CSS classes
// c0..c7 of the page.
#pragma once

#include <string>
#include <vector>

#include "profiler/evaluation/bootstrap.h"

namespace headroom::profiler {

struct PlotPoint {
  double x = 0.0;  // > 0
  Interval y;
  std::string label;    // printed beside the marker
  std::string tooltip;  // in words
};

struct PlotSeries {
  std::string name;
  int32_t style = 0;    // colour and shape, of 8
  bool hollow = false;  // markers
  int32_t dash = 0;     // 0: solid line
  std::vector<PlotPoint> points;
};

struct Plot {
  std::string title;    // for readers who do not see it
  std::string x_label;  // a share in percent on a logarithmic axis
  std::string y_label;
  bool y_is_share = false;  // 0 to 1, shown as percent
  std::vector<PlotSeries> series;
};

std::string SvgPlot(const Plot& plot);

}  // namespace headroom::profiler
