// Jinja's tests: `value is name(args)`.
#pragma once

#include <string_view>

#include "base/status.h"
#include "models/chat_template/budget.h"
#include "models/chat_template/call_args.h"

namespace headroom::models::jinja {

using TestFunction = StatusOr<bool> (*)(Budget& budget, std::string_view name, const Value& value,
                                        const Args& args);

struct TestEntry {
  std::string_view name;
  TestFunction function;
};

// Null for a test that Headroom does not have.
const TestEntry* FindTest(std::string_view name);

}  // namespace headroom::models::jinja
