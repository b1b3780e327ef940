// Logging: one logger, key=value lines on stderr. Never prompt or completion text.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace headroom {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Lines below `level` are dropped. Any thread.
void SetLogLevel(LogLevel level);

// Writes one line. Any thread.
void LogLine(LogLevel level, const std::string& line);

template <typename... Args>
void LogDebug(fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void LogInfo(fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void LogWarning(fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void LogError(fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace headroom
