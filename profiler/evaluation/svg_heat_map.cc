#include "profiler/evaluation/svg_heat_map.h"

#include <fmt/format.h>

#include <algorithm>

#include "profiler/evaluation/html_text.h"

namespace headroom::profiler {
namespace {

constexpr int kCellWidth = 54;
constexpr int kCellHeight = 24;
constexpr int kLeft = 74;
constexpr int kTop = 24;

std::string Cell(int x, int y, int32_t right, int32_t total) {
  if (total == 0) {
    return fmt::format(
        "<rect class=\"empty\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>"
        "<text class=\"tick\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">-</text>\n",
        x, y, kCellWidth - 2, kCellHeight - 2, x + kCellWidth / 2 - 1, y + 15);
  }
  const double share = static_cast<double>(right) / total;
  return fmt::format(
      "<rect class=\"heat\" fill-opacity=\"{:.2f}\" x=\"{}\" y=\"{}\" width=\"{}\" "
      "height=\"{}\"/><text class=\"{}\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}/{}</text>\n",
      share, x, y, kCellWidth - 2, kCellHeight - 2, share > 0.55 ? "on" : "tick",
      x + kCellWidth / 2 - 1, y + 15, right, total);
}

}  // namespace

std::string SvgHeatMap(const HeatMap& map) {
  const auto num_bins = static_cast<int>(map.totals.size());
  const auto num_lengths = static_cast<int>(map.lengths.size());
  const int width = std::max(kLeft + num_lengths * kCellWidth, 150);
  std::string svg = fmt::format(
      "<svg viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\" "
      "xmlns=\"http://www.w3.org/2000/svg\"><title>{2}</title>\n",
      width, kTop + num_bins * kCellHeight, EscapeHtml(map.title));
  for (int column = 0; column < num_lengths; ++column) {
    svg += fmt::format("<text class=\"tick\" x=\"{}\" y=\"16\" text-anchor=\"middle\">{}</text>\n",
                       kLeft + column * kCellWidth + kCellWidth / 2 - 1,
                       map.lengths[static_cast<size_t>(column)]);
  }
  for (int bin = 0; bin < num_bins; ++bin) {
    const int y = kTop + bin * kCellHeight;
    svg +=
        fmt::format("<text class=\"tick\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}-{} %</text>\n",
                    kLeft - 8, y + 15, 100 * bin / num_bins, 100 * (bin + 1) / num_bins);
    for (int column = 0; column < num_lengths; ++column) {
      const auto at = static_cast<size_t>(column);
      svg += Cell(kLeft + column * kCellWidth, y, map.right[static_cast<size_t>(bin)][at],
                  map.totals[static_cast<size_t>(bin)][at]);
    }
  }
  return svg + "</svg>";
}

}  // namespace headroom::profiler
