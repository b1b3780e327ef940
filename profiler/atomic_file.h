// Files that are there whole or not at all.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace headroom::profiler {

// Writes `text` beside `path` and renames it over `path`: a reader, or a run that is broken off,
// never sees half a file. Errors name the path and the system's reason.
Status WriteFileAtomically(const std::string& path, std::string_view text);

// Whether WriteFileAtomically could write there now: asked before hours of work, not after. Leaves
// nothing behind and does not touch a file that exists.
Status CheckWritable(const std::string& path);

}  // namespace headroom::profiler
