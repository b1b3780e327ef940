#include "profiler/svg_grid.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "profiler/evaluation/html_text.h"

namespace headroom::profiler {
namespace {

constexpr int kLeft = 56;
constexpr int kTop = 6;
constexpr int kBottom = 34;
constexpr int kWidth = 960;
constexpr int kCellHeight = 26;
constexpr int kStripHeight = 6;
constexpr int kMostCellWidth = 44;

std::string Cell(const GridCell& cell, double x, double y, double width, double height) {
  std::string svg = fmt::format(
      "<g><title>{}</title><rect class=\"cell{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" "
      "height=\"{:.1f}\" style=\"fill:{};fill-opacity:{:.2f}\"/>",
      EscapeHtml(cell.tooltip), cell.is_marked ? " marked" : "", x + 1, y + 1, width - 2,
      height - 2, cell.fill, cell.opacity);
  const double strip = (width - 2) / static_cast<double>(std::max<size_t>(cell.strips.size(), 1));
  for (size_t i = 0; i < cell.strips.size(); ++i) {
    svg += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" style=\"fill:{}\"/>",
        x + 1 + strip * static_cast<double>(i), y + height - 1, std::max(strip - 0.5, 0.5),
        kStripHeight, cell.strips[i]);
  }
  if (!cell.text.empty()) {
    svg +=
        fmt::format("<text class=\"in\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>",
                    x + width / 2, y + height / 2 + 4, EscapeHtml(cell.text));
  }
  return svg + "</g>\n";
}

}  // namespace

std::string SvgGrid(const HeadGrid& grid) {
  HEADROOM_CHECK(grid.cells.size() == static_cast<size_t>(grid.num_layers * grid.num_heads));
  const double width = std::min<double>(kMostCellWidth, double{kWidth - kLeft} / grid.num_layers);
  const bool has_strips = !grid.cells.empty() && !grid.cells.front().strips.empty();
  const double row = kCellHeight + (has_strips ? kStripHeight + 2 : 0);
  const double bottom = kTop + row * grid.num_heads;
  const double right = kLeft + width * grid.num_layers;
  std::string svg = fmt::format(
      "<svg viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" role=\"img\" "
      "xmlns=\"http://www.w3.org/2000/svg\"><title>{2}</title>\n",
      std::max(right + 8, 200.0), bottom + kBottom, EscapeHtml(grid.title));
  for (int head = 0; head < grid.num_heads; ++head) {
    svg += fmt::format(
        "<text class=\"tick\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">head {}</text>\n",
        kLeft - 6, kTop + row * head + kCellHeight / 2 + 4, head);
  }
  for (int layer = 0; layer < grid.num_layers; ++layer) {
    const double x = kLeft + width * layer;
    for (int head = 0; head < grid.num_heads; ++head) {
      svg += Cell(grid.cells[static_cast<size_t>(layer * grid.num_heads + head)], x,
                  kTop + row * head, width, kCellHeight);
    }
    const int step = width < 16 ? 10 : width < 24 ? 5 : 2;
    if (layer % step == 0) {
      svg += fmt::format(
          "<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
          x + width / 2, bottom + 14, layer);
    }
  }
  if (grid.ruled_layer >= 0) {
    svg += fmt::format("<path class=\"rule\" d=\"M{:.1f} {}V{:.1f}\"/>\n",
                       kLeft + width * (grid.ruled_layer + 1), kTop - 4, bottom + 2);
  }
  return svg + fmt::format(
                   "<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">layer"
                   "</text></svg>\n",
                   (kLeft + right) / 2, bottom + 30);
}

}  // namespace headroom::profiler
