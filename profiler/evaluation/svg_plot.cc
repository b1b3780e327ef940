#include "profiler/evaluation/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "profiler/evaluation/html_text.h"

namespace headroom::profiler {
namespace {

constexpr double kWidth = 760.0;
constexpr double kHeight = 380.0;
constexpr double kLeft = 64.0;
constexpr double kRight = 20.0;
constexpr double kTop = 16.0;
constexpr double kBottom = 48.0;
constexpr double kMarker = 5.0;
constexpr double kLegendLine = 20.0;
constexpr double kLegendGap = 12.0;
constexpr double kSlack = 0.05;  // steps of the y axis
constexpr const char* kDashes[] = {"", "6 4", "2 3", "8 3 2 3"};

// 1, 2 or 5 times a power of ten, so that about five steps cover the range.
double NiceStep(double range) {
  const double raw = std::max(range, 1e-12) / 5.0;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw) {
      return factor * power;
    }
  }
  return 10.0 * power;
}

// The shape of a style around (0, 0).
std::string Marker(int32_t style) {
  const double r = kMarker;
  switch (style % 8) {
    case 0:
      return fmt::format("<circle r=\"{}\"/>", r);
    case 1:
      return fmt::format("<rect x=\"{0}\" y=\"{0}\" width=\"{1}\" height=\"{1}\"/>", -0.9 * r,
                         1.8 * r);
    case 2:
      return fmt::format("<path d=\"M0 {}L{} {}L{} {}Z\"/>", -1.2 * r, 1.1 * r, 0.8 * r, -1.1 * r,
                         0.8 * r);
    case 3:
      return fmt::format("<path d=\"M0 {0}L{1} 0L0 {1}L{0} 0Z\"/>", -1.3 * r, 1.3 * r);
    case 4:
      return fmt::format("<path d=\"M0 {}L{} {}L{} {}Z\"/>", 1.2 * r, 1.1 * r, -0.8 * r, -1.1 * r,
                         -0.8 * r);
    case 5:
      return fmt::format("<path d=\"M{0} {2}H{2}V{0}H{3}V{2}H{1}V{3}H{3}V{1}H{2}V{3}H{0}Z\"/>", -r,
                         r, -0.35 * r, 0.35 * r);
    case 6:
      return fmt::format(
          "<path transform=\"rotate(45)\" d=\"M{0} {2}H{2}V{0}H{3}V{2}H{1}V{3}H{3}V{1}H{2}V{3}H{0}Z"
          "\"/>",
          -1.15 * r, 1.15 * r, -0.35 * r, 0.35 * r);
    default:
      return fmt::format("<path d=\"M{0} 0L{1} {2}H{3}L{4} 0L{3} {5}H{1}Z\"/>", -1.1 * r, -0.55 * r,
                         -0.95 * r, 0.55 * r, 1.1 * r, 0.95 * r);
  }
}

std::string MarkerClass(const PlotSeries& series) {
  return fmt::format("c{}{}", series.style % 8, series.hollow ? " hollow" : "");
}

class Drawing {
 public:
  explicit Drawing(const Plot& plot) : plot_(plot) { FindRanges(); }

  std::string Text() const {
    const double legend = kLegendLine * std::ceil(static_cast<double>(plot_.series.size()) / 2.0);
    std::string svg = fmt::format(
        "<svg viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\" "
        "xmlns=\"http://www.w3.org/2000/svg\">"
        "<title>{2}</title>\n",
        kWidth, kHeight + kLegendGap + legend, EscapeHtml(plot_.title));
    svg += Axes();
    for (const PlotSeries& series : plot_.series) {
      svg += Line(series);
    }
    for (const PlotSeries& series : plot_.series) {
      svg += Points(series);
    }
    return svg + Legend() + "</svg>\n";
  }

 private:
  void FindRanges() {
    double x_low = 1.0;
    double x_high = 1.0;
    y_high_ = plot_.y_is_share ? 1.0 : 1e-6;
    for (const PlotSeries& series : plot_.series) {
      for (const PlotPoint& point : series.points) {
        x_low = std::min(x_low, point.x);
        x_high = std::max(x_high, point.x);
        y_low_ = std::min(y_low_, point.y.low);
        y_high_ = std::max(y_high_, point.y.high);
      }
    }
    log_low_ = std::log(x_low * 0.85);
    log_high_ = std::log(x_high * 1.12);
    y_step_ = plot_.y_is_share ? 0.2 : NiceStep(y_high_ - y_low_);
    // A value just beyond a line does not open another step.
    y_low_ = std::floor(y_low_ / y_step_ + kSlack) * y_step_;
    y_high_ = std::ceil(y_high_ / y_step_ - kSlack) * y_step_;
  }

  double X(double share) const {
    return kLeft +
           (std::log(share) - log_low_) / (log_high_ - log_low_) * (kWidth - kLeft - kRight);
  }
  double Y(double value) const {
    return kHeight - kBottom - (value - y_low_) / (y_high_ - y_low_) * (kHeight - kTop - kBottom);
  }

  std::string Axes() const {
    std::string svg;
    const double bottom = kHeight - kBottom;
    const auto steps = static_cast<int>(std::lround((y_high_ - y_low_) / y_step_));
    const int digits = std::max(0, static_cast<int>(-std::floor(std::log10(y_step_) + 1e-9)));
    for (int i = 0; i <= steps; ++i) {
      const double value = y_low_ + i * y_step_;
      const std::string text =
          plot_.y_is_share ? fmt::format("{:.0f} %", 100.0 * value)
                           : fmt::format("{:.{}f}", std::abs(value) < 1e-12 ? 0.0 : value, digits);
      svg += fmt::format(
          "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
          "<text class=\"tick\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
          kLeft, kWidth - kRight, Y(value), Y(value), kLeft - 8, Y(value) + 4, text);
    }
    for (const double percent : {0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0}) {
      const double share = percent / 100.0;
      if (std::log(share) >= log_low_ && std::log(share) <= log_high_) {
        svg += fmt::format(
            "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/>"
            "<text class=\"tick\" x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\">{4:g} %</text>\n",
            X(share), kTop, bottom, bottom + 18, percent);
      }
    }
    svg += fmt::format(
        "<text class=\"axis\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n"
        "<text class=\"axis\" transform=\"translate(14 {}) rotate(-90)\" text-anchor=\"middle\">"
        "{}</text>\n",
        (kLeft + kWidth - kRight) / 2, bottom + 38, EscapeHtml(plot_.x_label), (kTop + bottom) / 2,
        EscapeHtml(plot_.y_label));
    return svg;
  }

  std::string Line(const PlotSeries& series) const {
    std::vector<PlotPoint> points = series.points;
    std::stable_sort(points.begin(), points.end(),
                     [](const PlotPoint& a, const PlotPoint& b) { return a.x < b.x; });
    std::string path;
    for (const PlotPoint& point : points) {
      path +=
          fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", X(point.x), Y(point.y.value));
    }
    return points.size() < 2
               ? std::string()
               : fmt::format(
                     "<path class=\"line c{}\" fill=\"none\" stroke-dasharray=\"{}\" d=\"{}\"/>\n",
                     series.style % 8, Dash(series), path);
  }

  static const char* Dash(const PlotSeries& series) {
    const auto index = static_cast<size_t>(series.dash) % std::size(kDashes);
    return index == 0 ? "none" : kDashes[index];
  }

  std::string Points(const PlotSeries& series) const {
    // Series with equal points put their labels into different corners.
    const bool is_left = series.style % 2 == 1;
    const bool is_below = series.style / 2 % 2 == 1;
    std::string svg;
    for (const PlotPoint& point : series.points) {
      svg += fmt::format(
          "<g><title>{}</title>"
          "<line class=\"whisker c{}\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
          "<g class=\"{}\" transform=\"translate({:.1f} {:.1f})\">{}</g>"
          "<text class=\"mark\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text></g>\n",
          EscapeHtml(point.tooltip), series.style % 8, X(point.x), X(point.x), Y(point.y.low),
          Y(point.y.high), MarkerClass(series), X(point.x), Y(point.y.value), Marker(series.style),
          X(point.x) + (is_left ? -7 : 7), Y(point.y.value) + (is_below ? 15 : -6),
          is_left ? "end" : "start", EscapeHtml(point.label));
    }
    return svg;
  }

  std::string Legend() const {
    std::string svg;
    for (size_t i = 0; i < plot_.series.size(); ++i) {
      const PlotSeries& series = plot_.series[i];
      const double x = kLeft + (i % 2 == 0 ? 0.0 : (kWidth - kLeft) / 2.0);
      const double y = kHeight + kLegendGap + kLegendLine * static_cast<double>(i / 2);
      svg += fmt::format(
          "<path class=\"line c{}\" fill=\"none\" stroke-dasharray=\"{}\" d=\"M{} {}h32\"/>"
          "<g class=\"{}\" transform=\"translate({} {})\">{}</g>"
          "<text class=\"tick\" x=\"{}\" y=\"{}\">{}</text>\n",
          series.style % 8, Dash(series), x, y, MarkerClass(series), x + 16, y,
          Marker(series.style), x + 42, y + 4, EscapeHtml(series.name));
    }
    return svg;
  }

  const Plot& plot_;
  double log_low_ = 0.0;
  double log_high_ = 1.0;
  double y_low_ = 0.0;
  double y_high_ = 0.0;
  double y_step_ = 1.0;
};

}  // namespace

std::string SvgPlot(const Plot& plot) { return Drawing(plot).Text(); }

}  // namespace headroom::profiler
