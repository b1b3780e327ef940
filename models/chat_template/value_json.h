// Values <-> JSON text. The one file of the chat template that may use the JSON library.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "models/chat_template/budget.h"
#include "models/chat_template/value.h"

namespace headroom::models {

// The nesting that JSON from outside may have.
inline constexpr int32_t kMaxJsonDepth = 64;

// Parses JSON into a value: objects keep their order (of equal keys the last value stands), null is
// none, integers beyond 64 bits become floating point. Strings are message text when `from_message`
// and template text otherwise. No document tree is built, and nesting is checked while reading.
// InvalidArgument: not JSON, not UTF-8, nested more than kMaxJsonDepth deep.
StatusOr<Value> ValueFromJson(std::string_view json, bool from_message);

namespace jinja {

// The arguments of Python's json.dumps that templates use.
struct JsonStyle {
  std::optional<int64_t> indent;
  std::optional<std::string> item_separator;  // default ", ", with indent ","
  std::optional<std::string> key_separator;   // default ": "
  bool ensure_ascii = false;
  bool sort_keys = false;
};

// As transformers' tojson filter prints it: json.dumps, no HTML escapes. InvalidArgument for
// undefined values and functions.
StatusOr<std::string> DumpJson(Budget& budget, const Value& value, const JsonStyle& style);

}  // namespace jinja

}  // namespace headroom::models
