#include "models/file_error.h"

namespace headroom::models {

std::string Printable(std::string_view name) {
  constexpr size_t kMaxBytes = 80;
  std::string text(name.substr(0, kMaxBytes));
  for (char& c : text) {
    if (c < 0x20 || c > 0x7e) {
      c = '?';
    }
  }
  if (name.size() > kMaxBytes) {
    text += "...";
  }
  return text;
}

}  // namespace headroom::models
