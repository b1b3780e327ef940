#include "profiler/evaluation/text_table.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace headroom::profiler {

TextTable::TextTable(std::vector<std::string> header) { lines_.push_back(std::move(header)); }

void TextTable::Add(std::vector<std::string> cells) {
  HEADROOM_CHECK(cells.size() <= lines_.front().size());
  cells.resize(lines_.front().size());
  lines_.push_back(std::move(cells));
}

std::string TextTable::Text() const {
  std::vector<size_t> widths(lines_.front().size(), 0);
  for (const std::vector<std::string>& line : lines_) {
    for (size_t i = 0; i < line.size(); ++i) {
      widths[i] = std::max(widths[i], line[i].size());
    }
  }
  std::string text;
  for (const std::vector<std::string>& line : lines_) {
    for (size_t i = 0; i < line.size(); ++i) {
      const std::string padding(widths[i] - line[i].size(), ' ');
      text += i == 0 ? line[i] + padding : "  " + padding + line[i];
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

}  // namespace headroom::profiler
