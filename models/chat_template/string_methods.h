// Methods of str.
#pragma once

#include <string_view>

#include "base/status.h"
#include "models/chat_template/budget.h"
#include "models/chat_template/call_args.h"

namespace headroom::models::jinja {

bool IsStringMethod(std::string_view name);

// `object` is text. InvalidArgument for methods that Headroom does not have.
StatusOr<Value> CallStringMethod(Budget& budget, const Value& object, std::string_view name,
                                 const Args& args);

// Items of `list` as text with `separator` between; every item must be text.
StatusOr<ProvenancedText> JoinTexts(Budget& budget, const ProvenancedText& separator,
                                    const ValueList& items);

}  // namespace headroom::models::jinja
