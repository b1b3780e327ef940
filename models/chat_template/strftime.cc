#include "models/chat_template/strftime.h"

#include <chrono>

namespace headroom::models::jinja {

namespace {

constexpr std::string_view kDays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                      "Thursday", "Friday", "Saturday"};
constexpr std::string_view kMonths[] = {"January",   "February", "March",    "April",
                                        "May",       "June",     "July",     "August",
                                        "September", "October",  "November", "December"};

struct Moment {
  int64_t year = 0;
  unsigned month = 0;    // 1..12
  unsigned day = 0;      // 1..31
  unsigned weekday = 0;  // 0 is Sunday
  int64_t year_day = 0;  // 1..366
  int64_t hour = 0;
  int64_t minute = 0;
  int64_t second = 0;
};

StatusOr<Moment> MomentAt(int64_t local_time_s) {
  // The years 1 to 9999, which is also what Python has.
  if (local_time_s < -62'135'596'800 || local_time_s > 253'402'300'799) {
    return OutOfRange("the time {} s is outside the years 1 to 9999", local_time_s);
  }
  const std::chrono::sys_seconds time{std::chrono::seconds{local_time_s}};
  const auto days = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date{days};
  const int64_t rest = (time - days).count();
  Moment moment;
  moment.year = static_cast<int>(date.year());
  moment.month = static_cast<unsigned>(date.month());
  moment.day = static_cast<unsigned>(date.day());
  moment.weekday = std::chrono::weekday{days}.c_encoding();
  moment.year_day = (days - std::chrono::sys_days{date.year() / 1 / 1}).count() + 1;
  moment.hour = rest / 3600;
  moment.minute = rest / 60 % 60;
  moment.second = rest % 60;
  return moment;
}

// One conversion; false when it is not known. `pad` is the width's filler, '0', ' ' or none ('-').
bool AppendConversion(char conversion, bool pads, const Moment& at, std::string& out) {
  const int64_t hour12 = at.hour % 12 == 0 ? 12 : at.hour % 12;
  const auto number = [&](int64_t value, int width) {
    out += pads ? fmt::format("{:0{}}", value, width) : fmt::format("{}", value);
  };
  const std::string_view day = kDays[at.weekday];
  const std::string_view month = kMonths[at.month - 1];
  switch (conversion) {
    case 'a':
      out += day.substr(0, 3);
      return true;
    case 'A':
      out += day;
      return true;
    case 'b':
    case 'h':
      out += month.substr(0, 3);
      return true;
    case 'B':
      out += month;
      return true;
    case 'd':
      number(at.day, 2);
      return true;
    case 'e':
      out += pads ? fmt::format("{:2}", at.day) : fmt::format("{}", at.day);
      return true;
    case 'H':
      number(at.hour, 2);
      return true;
    case 'I':
      number(hour12, 2);
      return true;
    case 'j':
      number(at.year_day, 3);
      return true;
    case 'm':
      number(at.month, 2);
      return true;
    case 'M':
      number(at.minute, 2);
      return true;
    case 'p':
      out += at.hour < 12 ? "AM" : "PM";
      return true;
    case 'S':
      number(at.second, 2);
      return true;
    case 'u':
      number(at.weekday == 0 ? 7 : at.weekday, 1);
      return true;
    case 'w':
      number(at.weekday, 1);
      return true;
    case 'y':
      number(at.year % 100, 2);
      return true;
    case 'Y':
      out += fmt::format("{}", at.year);
      return true;
    case 'n':
      out += '\n';
      return true;
    case 't':
      out += '\t';
      return true;
    case '%':
      out += '%';
      return true;
    default:
      return false;
  }
}

// Conversions that stand for several others; empty when there is none.
std::string_view Expansion(char conversion) {
  switch (conversion) {
    case 'c':
      return "%a %b %e %H:%M:%S %Y";
    case 'D':
    case 'x':
      return "%m/%d/%y";
    case 'F':
      return "%Y-%m-%d";
    case 'R':
      return "%H:%M";
    case 'T':
    case 'X':
      return "%H:%M:%S";
    case 'r':
      return "%I:%M:%S %p";
    default:
      return "";
  }
}

}  // namespace

StatusOr<std::string> FormatTime(std::string_view format, int64_t local_time_s) {
  HEADROOM_ASSIGN_OR_RETURN(const Moment at, MomentAt(local_time_s));
  std::string expanded;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      expanded += format[i];
      continue;
    }
    const std::string_view several = Expansion(format[i + 1]);
    expanded += several.empty() ? format.substr(i, 2) : several;
    ++i;
  }
  std::string out;
  for (size_t i = 0; i < expanded.size(); ++i) {
    if (expanded[i] != '%') {
      out += expanded[i];
      continue;
    }
    const bool pads = i + 1 >= expanded.size() || expanded[i + 1] != '-';
    i += pads ? 1 : 2;
    if (i >= expanded.size() || !AppendConversion(expanded[i], pads, at, out)) {
      return InvalidArgument("strftime_now: the conversion '%{}' is not supported",
                             i < expanded.size() ? expanded.substr(i, 1) : std::string());
    }
  }
  return out;
}

}  // namespace headroom::models::jinja
