// Dates as Python's strftime prints them in the C locale.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace headroom::models::jinja {

// `local_time_s`: seconds since 1970 of the wall clock. InvalidArgument names a conversion that is
// not known; known: %a %A %b %B %c %d %e %H %I %j %m %M %p %S %u %w %y %Y %D %F %T %R %x %X %h %n
// %t %%, and %- before a number drops its leading zeros.
StatusOr<std::string> FormatTime(std::string_view format, int64_t local_time_s);

}  // namespace headroom::models::jinja
