#include "profiler/svg_curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "profiler/evaluation/html_text.h"

namespace headroom::profiler {
namespace {

constexpr double kHeight = 260.0;
constexpr double kLeft = 58.0;
constexpr double kRight = 22.0;
constexpr double kTop = 12.0;
constexpr double kBottom = 44.0;
constexpr int kYSteps = 5;

class Axes {
 public:
  explicit Axes(const CurvePlot& plot) : plot_(plot) {}

  double X(double value) const {
    const double low = Scaled(plot_.x_low);
    const double share = (Scaled(value) - low) / std::max(Scaled(plot_.x_high) - low, 1e-12);
    return kLeft + std::clamp(share, 0.0, 1.0) * (plot_.width - kLeft - kRight);
  }
  double Y(double value) const {
    const double share = (value - plot_.y_low) / std::max(plot_.y_high - plot_.y_low, 1e-12);
    return kHeight - kBottom - std::clamp(share, 0.0, 1.0) * (kHeight - kTop - kBottom);
  }

  std::string Text() const {
    std::string svg;
    const double right = plot_.width - kRight;
    const double step = (plot_.y_high - plot_.y_low) / kYSteps;
    const int digits = step < 0.1 ? 3 : step < 1.0 ? 2 : 0;
    for (int i = 0; i <= kYSteps; ++i) {
      const double value = plot_.y_low + step * i;
      svg += fmt::format(
          "<path class=\"grid\" d=\"M{} {:.1f}H{}\"/><text class=\"tick\" x=\"{}\" y=\"{:.1f}\" "
          "text-anchor=\"end\">{:.{}f}</text>\n",
          kLeft, Y(value), right, kLeft - 6, Y(value) + 4, value, digits);
    }
    for (const double value : Ticks()) {
      svg += fmt::format(
          "<path class=\"grid\" d=\"M{0:.1f} {1}V{2}\"/><text class=\"tick\" x=\"{0:.1f}\" "
          "y=\"{3}\" "
          "text-anchor=\"middle\">{4:g}</text>\n",
          X(value), kTop, kHeight - kBottom, kHeight - kBottom + 16, value);
    }
    svg += fmt::format(
        "<text x=\"{:.0f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n"
        "<text transform=\"translate(13 {:.0f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
        (kLeft + right) / 2, kHeight - 8, EscapeHtml(plot_.x_label), (kTop + kHeight - kBottom) / 2,
        EscapeHtml(plot_.y_label));
    return svg + Marks();
  }

 private:
  double Scaled(double value) const {
    return plot_.x_is_log ? std::log2(std::max(value, 1e-9)) : value;
  }
  std::vector<double> Ticks() const {
    std::vector<double> ticks;
    if (plot_.x_is_log) {
      for (double value = 1.0; value <= plot_.x_high; value *= 2.0) {
        if (value >= plot_.x_low) {
          ticks.push_back(value);
        }
      }
      return ticks;
    }
    const double raw = (plot_.x_high - plot_.x_low) / 6.0;
    const double power = std::pow(10.0, std::floor(std::log10(std::max(raw, 1e-9))));
    const double step = raw > 5.0 * power   ? 10.0 * power
                        : raw > 2.0 * power ? 5.0 * power
                                            : 2.0 * power;
    for (double value = std::ceil(plot_.x_low / step) * step; value <= plot_.x_high + step * 1e-6;
         value += step) {
      ticks.push_back(std::abs(value) < step * 1e-6 ? 0.0 : value);
    }
    return ticks;
  }
  std::string Marks() const {
    std::string svg;
    if (plot_.x_mark >= plot_.x_low) {
      svg += fmt::format("<path class=\"rule\" d=\"M{:.1f} {}V{}\"/>\n", X(plot_.x_mark), kTop,
                         kHeight - kBottom);
    }
    if (plot_.y_mark >= plot_.y_low) {
      svg += fmt::format("<path class=\"rule\" d=\"M{} {:.1f}H{}\"/>\n", kLeft, Y(plot_.y_mark),
                         plot_.width - kRight);
    }
    return svg;
  }

  const CurvePlot& plot_;
};

std::string Line(const Curve& curve, const Axes& axes) {
  std::string path;
  for (const auto& [x, y] : curve.points) {
    if (curve.has_line) {
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", axes.X(x), axes.Y(y));
    }
  }
  std::string svg =
      fmt::format("<g style=\"color:{}\"><path class=\"line\" stroke-dasharray=\"{}\" d=\"{}\"/>",
                  curve.colour, curve.is_dashed ? "5 4" : "none", path.empty() ? "M0 0" : path);
  for (size_t i = 0; i < curve.tooltips.size() && i < curve.points.size(); ++i) {
    svg += fmt::format(
        "<circle class=\"dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.2\"><title>{}</title></circle>",
        axes.X(curve.points[i].first), axes.Y(curve.points[i].second),
        EscapeHtml(curve.tooltips[i]));
  }
  return svg + "</g>\n";
}

}  // namespace

std::string SvgCurves(const CurvePlot& plot) {
  const Axes axes(plot);
  int entries = 0;
  std::string lines;
  std::string legend;
  const int columns = std::max(1, (plot.width - 60) / 190);
  for (const Curve& curve : plot.curves) {
    lines += Line(curve, axes);
    if (!curve.name.empty()) {
      const int x = static_cast<int>(kLeft) + entries % columns * 190;
      const int y = static_cast<int>(kHeight) + 12 + entries / columns * 18;
      legend += fmt::format(
          "<g style=\"color:{}\"><path class=\"line\" stroke-dasharray=\"{}\" d=\"M{} {}h22\"/></g>"
          "<text class=\"tick\" x=\"{}\" y=\"{}\">{}</text>\n",
          curve.colour, curve.is_dashed ? "5 4" : "none", x, y, x + 28, y + 4,
          EscapeHtml(curve.name));
      ++entries;
    }
  }
  const int rows = (entries + columns - 1) / columns;
  return fmt::format(
             "<svg viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\" "
             "xmlns=\"http://www.w3.org/2000/svg\"><title>{2}</title>\n",
             plot.width, static_cast<int>(kHeight) + rows * 18 + 6, EscapeHtml(plot.title)) +
         axes.Text() + lines + legend + "</svg>\n";
}

}  // namespace headroom::profiler
