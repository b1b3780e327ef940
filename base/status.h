// Status and StatusOr for everything that can fail, built from fmt format strings.
//
// Debian's Abseil has its own string_view, so its types stay behind this header: messages are
// made with fmt and read back with StatusMessage(). Error text says what, where, got, wanted.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace headroom {

using absl::OkStatus;
using absl::Status;
using absl::StatusCode;
using absl::StatusOr;

inline Status MakeStatus(StatusCode code, const std::string& message) {
  return Status(code, message);
}

template <typename... Args>
Status InvalidArgument(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(StatusCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Status NotFound(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(StatusCode::kNotFound, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Status FailedPrecondition(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(StatusCode::kFailedPrecondition,
                    fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Status ResourceExhausted(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(StatusCode::kResourceExhausted,
                    fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Status OutOfRange(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(StatusCode::kOutOfRange, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Status Unimplemented(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(StatusCode::kUnimplemented, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Status Unavailable(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(StatusCode::kUnavailable, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Status Internal(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(StatusCode::kInternal, fmt::format(format, std::forward<Args>(args)...));
}

// The message as std::string.
inline std::string StatusMessage(const Status& status) {
  return std::string(status.message().data(), status.message().size());
}

}  // namespace headroom

// Returns from the enclosing function when `expr` (a Status) is not OK.
#define HEADROOM_RETURN_IF_ERROR(expr)            \
  do {                                            \
    ::headroom::Status headroom_status_ = (expr); \
    if (!headroom_status_.ok()) {                 \
      return headroom_status_;                    \
    }                                             \
  } while (false)

#define HEADROOM_CONCAT_INNER_(a, b) a##b
#define HEADROOM_CONCAT_(a, b) HEADROOM_CONCAT_INNER_(a, b)

// `HEADROOM_ASSIGN_OR_RETURN(auto x, F());` assigns the value of a StatusOr or returns its error.
#define HEADROOM_ASSIGN_OR_RETURN(lhs, expr) \
  HEADROOM_ASSIGN_OR_RETURN_IMPL_(HEADROOM_CONCAT_(headroom_or_, __LINE__), lhs, expr)
#define HEADROOM_ASSIGN_OR_RETURN_IMPL_(name, lhs, expr) \
  auto name = (expr);                                    \
  if (!name.ok()) {                                      \
    return name.status();                                \
  }                                                      \
  lhs = std::move(name).value()
