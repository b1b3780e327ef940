// CHECK: a broken invariant of our own. Never reachable from a file, flag, header or request.
#pragma once

namespace headroom {

// Prints the failed condition with its place and aborts.
[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);

}  // namespace headroom

#define HEADROOM_CHECK(condition)                              \
  do {                                                         \
    if (!(condition)) [[unlikely]] {                           \
      ::headroom::CheckFailed(#condition, __FILE__, __LINE__); \
    }                                                          \
  } while (false)

#ifdef NDEBUG
#define HEADROOM_DCHECK(condition) \
  do {                             \
  } while (false && (condition))
#else
#define HEADROOM_DCHECK(condition) HEADROOM_CHECK(condition)
#endif
