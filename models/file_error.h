// Error text of model files: file, byte offset, reason.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace headroom::models {

// "PATH: offset N: REASON"
template <typename... Args>
Status FileError(const std::string& path, uint64_t offset, fmt::format_string<Args...> format,
                 Args&&... args) {
  return InvalidArgument("{}: offset {}: {}", path, offset,
                         fmt::format(format, std::forward<Args>(args)...));
}

// A name out of a file, safe to print: other bytes than printable ASCII become '?', and what is
// longer than 80 bytes is cut.
std::string Printable(std::string_view name);

}  // namespace headroom::models
