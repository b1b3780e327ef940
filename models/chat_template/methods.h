// Methods of strings, lists and dicts.
#pragma once

#include <string_view>

#include "base/status.h"
#include "models/chat_template/budget.h"
#include "models/chat_template/call_args.h"

namespace headroom::models::jinja {

// Python's type of `object` has a method of this name (callable here or not).
bool HasMethod(const Value& object, std::string_view name);

// InvalidArgument for methods that change their object (Jinja's sandbox refuses them too) and for
// those that Headroom does not have.
StatusOr<Value> CallMethod(Budget& budget, const Value& object, std::string_view name,
                           const Args& args);

}  // namespace headroom::models::jinja
