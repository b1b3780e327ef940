// Arguments of filters, tests, methods and functions, once evaluated.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "models/chat_template/value.h"

namespace headroom::models::jinja {

struct Args {
  ValueList positional;
  std::vector<std::pair<std::string, Value>> named;
};

// The arguments in the order of `names`; undefined where none was given. InvalidArgument for a
// missing one of the first `num_required`, an unknown name, one given twice, or too many.
StatusOr<ValueList> BindArgs(std::string_view function, const Args& args,
                             const std::vector<std::string_view>& names, size_t num_required);

// Readers with a default for undefined (and, for numbers, none); InvalidArgument for other types.
StatusOr<int64_t> IntegerArg(std::string_view function, const Value& value, int64_t otherwise);
StatusOr<const ProvenancedText*> TextArg(std::string_view function, const Value& value);
bool BoolArg(const Value& value, bool otherwise);

}  // namespace headroom::models::jinja
