// Text of unknown origin inside HTML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace headroom::profiler {

// Markup characters as entities; control characters and bytes that are not UTF-8 as '?'.
std::string EscapeHtml(std::string_view text);

}  // namespace headroom::profiler
