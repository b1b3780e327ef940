// Columns of text, padded to equal width.
#pragma once

#include <string>
#include <vector>

namespace headroom::profiler {

class TextTable {
 public:
  // The first column is set left, the others right.
  explicit TextTable(std::vector<std::string> header);
  // As many cells as the header; missing ones are empty.
  void Add(std::vector<std::string> cells);
  std::string Text() const;  // lines end in a line break, without trailing spaces

 private:
  std::vector<std::vector<std::string>> lines_;
};

}  // namespace headroom::profiler
