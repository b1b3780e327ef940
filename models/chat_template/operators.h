// Jinja's operators on values, with Python's meaning.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "models/chat_template/ast.h"
#include "models/chat_template/budget.h"
#include "models/chat_template/value.h"

namespace headroom::models::jinja {

// A bool counts as 0 or 1, as in Python.
struct Number {
  bool is_integer = true;
  int64_t integer = 0;
  double real = 0.0;  // the value either way
};
std::optional<Number> AsNumber(const Value& value);

bool IsTrue(const Value& value);

// Python's name of the type: "str", "list", "tuple", "dict", "int", ...
std::string_view TypeName(const Value& value);

// InvalidArgument with the reason when `value` is undefined.
Status RequireDefined(const Value& value);

StatusOr<bool> Equal(Budget& budget, const Value& a, const Value& b);
// a < b for two numbers, two strings or two lists; InvalidArgument for other pairs.
StatusOr<bool> Less(Budget& budget, const Value& a, const Value& b);
// `item in container`.
StatusOr<bool> Contains(Budget& budget, const Value& container, const Value& item);

// Any of the comparison operators.
StatusOr<bool> Compare(Budget& budget, Op op, const Value& a, const Value& b);

// +, -, *, /, //, %, **. Integers have 64 bits; overflow is an error. `a` is consumed, so that a
// chain of + appends in place.
StatusOr<Value> Arithmetic(Budget& budget, Op op, Value a, const Value& b);

StatusOr<Value> Negate(const Value& value);

}  // namespace headroom::models::jinja
