#include "models/chat_template/value_tests.h"

#include <algorithm>

#include "models/chat_template/filters.h"
#include "models/chat_template/operators.h"
#include "models/chat_template/unicode.h"

namespace headroom::models::jinja {

namespace {

// Tests of the value's type alone.
StatusOr<bool> IsOfType(Budget&, std::string_view name, const Value& value, const Args& args) {
  HEADROOM_RETURN_IF_ERROR(BindArgs(name, args, {}, 0).status());
  const bool is_callable = value.Is<std::shared_ptr<const CallableObject>>();
  const bool is_sequence =
      value.text() != nullptr || value.list() != nullptr || value.dict() != nullptr;
  if (name == "defined")
    return !value.is_undefined();
  if (name == "undefined")
    return value.is_undefined();
  if (name == "none")
    return value.is_none();
  if (name == "string")
    return value.text() != nullptr;
  if (name == "mapping")
    return value.dict() != nullptr;
  if (name == "sequence")
    return is_sequence;
  if (name == "iterable")
    return is_sequence || value.is_undefined();
  if (name == "boolean")
    return value.Is<bool>();
  if (name == "integer")
    return value.Is<int64_t>();
  if (name == "float")
    return value.Is<double>();
  if (name == "number")
    return AsNumber(value).has_value();
  if (name == "callable")
    return is_callable;
  if (name == "true")
    return value.Is<bool>() && IsTrue(value);
  if (name == "false")
    return value.Is<bool>() && !IsTrue(value);
  return false;
}

StatusOr<bool> IsParity(Budget&, std::string_view name, const Value& value, const Args& args) {
  const bool takes_divisor = name == "divisibleby";
  int64_t divisor = 2;
  if (takes_divisor) {
    HEADROOM_ASSIGN_OR_RETURN(const ValueList bound, BindArgs(name, args, {"num"}, 1));
    HEADROOM_ASSIGN_OR_RETURN(divisor, IntegerArg(name, bound[0], 0));
  } else {
    HEADROOM_RETURN_IF_ERROR(BindArgs(name, args, {}, 0).status());
  }
  HEADROOM_RETURN_IF_ERROR(RequireDefined(value));
  const std::optional<Number> number = AsNumber(value);
  if (!number || !number->is_integer) {
    return InvalidArgument("'is {}' wants an integer, got {}", name, TypeName(value));
  }
  if (divisor == 0) {
    return InvalidArgument("'is {}': division by zero", name);
  }
  const int64_t rest = divisor == -1 ? 0 : number->integer % divisor;
  return name == "odd" ? rest != 0 : rest == 0;
}

StatusOr<bool> IsCompared(Budget& budget, std::string_view name, const Value& value,
                          const Args& args) {
  HEADROOM_ASSIGN_OR_RETURN(const ValueList bound, BindArgs(name, args, {"other"}, 1));
  Op op = Op::kEqual;
  if (name == "ne" || name == "!=")
    op = Op::kNotEqual;
  if (name == "lt" || name == "lessthan" || name == "<")
    op = Op::kLess;
  if (name == "le" || name == "<=")
    op = Op::kLessEqual;
  if (name == "gt" || name == "greaterthan" || name == ">")
    op = Op::kGreater;
  if (name == "ge" || name == ">=")
    op = Op::kGreaterEqual;
  if (name == "in")
    op = Op::kIn;
  return Compare(budget, op, value, bound[0]);
}

// Python's `is`: the same object, not an equal one.
StatusOr<bool> IsSame(Budget& budget, std::string_view name, const Value& value, const Args& args) {
  HEADROOM_ASSIGN_OR_RETURN(const ValueList bound, BindArgs(name, args, {"other"}, 1));
  if (value.data().index() != bound[0].data().index()) {
    return false;
  }
  if (value.list() != nullptr || value.dict() != nullptr) {
    return value.list() == bound[0].list() && value.dict() == bound[0].dict();
  }
  return Equal(budget, value, bound[0]);
}

StatusOr<bool> IsCase(Budget& budget, std::string_view name, const Value& value, const Args& args) {
  HEADROOM_RETURN_IF_ERROR(BindArgs(name, args, {}, 0).status());
  HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText* text, TextArg(name, value));
  HEADROOM_RETURN_IF_ERROR(budget.Step(static_cast<int64_t>(text->text.size() / 16)));
  bool any_cased = false;
  for (size_t i = 0; i < text->text.size();) {
    const CodePoint point = CodePointAt(text->text, i);
    const uint32_t mapped = name == "upper" ? ToUpper(point.value) : ToLower(point.value);
    if (mapped != point.value) {
      return false;
    }
    any_cased = any_cased || IsCased(point.value);
    i += point.size;
  }
  return any_cased;
}

// `is filter` and `is test`: the value names one.
StatusOr<bool> IsKnown(Budget&, std::string_view name, const Value& value, const Args& args) {
  HEADROOM_RETURN_IF_ERROR(BindArgs(name, args, {}, 0).status());
  HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText* text, TextArg(name, value));
  return name == "filter" ? FindFilter(text->text) != nullptr : FindTest(text->text) != nullptr;
}

constexpr TestEntry kTests[] = {
    {"defined", IsOfType},   {"undefined", IsOfType},     {"none", IsOfType},
    {"string", IsOfType},    {"mapping", IsOfType},       {"sequence", IsOfType},
    {"iterable", IsOfType},  {"boolean", IsOfType},       {"integer", IsOfType},
    {"float", IsOfType},     {"number", IsOfType},        {"callable", IsOfType},
    {"true", IsOfType},      {"false", IsOfType},         {"odd", IsParity},
    {"even", IsParity},      {"divisibleby", IsParity},   {"eq", IsCompared},
    {"equalto", IsCompared}, {"==", IsCompared},          {"ne", IsCompared},
    {"!=", IsCompared},      {"lt", IsCompared},          {"lessthan", IsCompared},
    {"<", IsCompared},       {"le", IsCompared},          {"<=", IsCompared},
    {"gt", IsCompared},      {"greaterthan", IsCompared}, {">", IsCompared},
    {"ge", IsCompared},      {">=", IsCompared},          {"in", IsCompared},
    {"sameas", IsSame},      {"lower", IsCase},           {"upper", IsCase},
    {"filter", IsKnown},     {"test", IsKnown},
};

}  // namespace

const TestEntry* FindTest(std::string_view name) {
  const auto* end = std::end(kTests);
  const auto* found = std::find_if(std::begin(kTests), end,
                                   [&](const TestEntry& entry) { return entry.name == name; });
  return found == end ? nullptr : found;
}

}  // namespace headroom::models::jinja
