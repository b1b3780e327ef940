#include "profiler/profile_report.h"

namespace headroom::profiler {

std::string HtmlText(const ProfileReport&) { return ""; }

}  // namespace headroom::profiler
