// Reading files of JSON lines: one value a line, each checked before use. Errors say file:line.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace headroom::profiler {

// `where` is "file:line".
using JsonLineVisitor = std::function<Status(const nlohmann::json& line, const std::string& where)>;

// Calls `visit` for every line that is not blank; stops at the first error. Nesting is limited to 8
// levels before anything is built.
Status ForEachJsonLine(std::string_view text, const std::string& source,
                       const JsonLineVisitor& visit);

// A list of token ids in [0, vocab_size), at least one.
StatusOr<std::vector<int32_t>> ReadIds(const nlohmann::json& value, const std::string& where,
                                       int32_t vocab_size);
// The same of a field that must be there.
StatusOr<std::vector<int32_t>> ReadIdField(const nlohmann::json& object, const char* name,
                                           const std::string& where, int32_t vocab_size);
// A string field that must be there.
StatusOr<std::string> ReadStringField(const nlohmann::json& object, const char* name,
                                      const std::string& where);

}  // namespace headroom::profiler
