// Filters on single values: defaults, numbers, tojson.
#include <charconv>
#include <cmath>
#include <limits>

#include "models/chat_template/access.h"
#include "models/chat_template/filters.h"
#include "models/chat_template/operators.h"
#include "models/chat_template/provenance.h"
#include "models/chat_template/text_ops.h"
#include "models/chat_template/unicode.h"
#include "models/chat_template/value_json.h"

namespace headroom::models::jinja {

namespace {

StatusOr<Value> FilterDefault(Budget&, std::string_view name, const Value& value,
                              const Args& args) {
  HEADROOM_ASSIGN_OR_RETURN(ValueList bound, BindArgs(name, args, {"default_value", "boolean"}, 0));
  const bool replace = value.is_undefined() || (BoolArg(bound[1], false) && !IsTrue(value));
  if (!replace) {
    return value;
  }
  return args.positional.empty() && bound[0].is_undefined() ? Value::TemplateString("") : bound[0];
}

StatusOr<Value> FilterLength(Budget& budget, std::string_view name, const Value& value,
                             const Args& args) {
  HEADROOM_RETURN_IF_ERROR(BindArgs(name, args, {}, 0).status());
  if (value.is_undefined()) {
    return Value::Int(0);
  }
  if (const ProvenancedText* text = value.text()) {
    HEADROOM_RETURN_IF_ERROR(budget.Step(static_cast<int64_t>(text->text.size() / 64)));
    return Value::Int(CountCodePoints(text->text));
  }
  if (const ListObject* list = value.list()) {
    return Value::Int(static_cast<int64_t>(list->items.size()));
  }
  if (const DictObject* dict = value.dict()) {
    return Value::Int(static_cast<int64_t>(dict->entries.size()));
  }
  return InvalidArgument("'{}' has no length", TypeName(value));
}

// Decimal text as Python's float() reads it; nothing when it is not a number.
std::optional<double> ParseReal(std::string_view text) {
  const size_t begin = SkipSpaceForward(text, 0);
  text = text.substr(begin, SkipSpaceBackward(text, text.size()) - std::min(begin, text.size()));
  if (text.starts_with('+') && text.size() > 1 && text[1] != '-') {
    text.remove_prefix(1);
  }
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

std::optional<int64_t> ParseInteger(std::string_view text, int base) {
  const size_t begin = SkipSpaceForward(text, 0);
  text = text.substr(begin, SkipSpaceBackward(text, text.size()) - std::min(begin, text.size()));
  if (text.starts_with('+') && text.size() > 1 && text[1] != '-') {
    text.remove_prefix(1);
  }
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

// Towards zero; nothing for what has no 64-bit integer.
std::optional<int64_t> Truncate(double value) {
  if (!(std::abs(value) < 9.2e18)) {
    return std::nullopt;
  }
  return static_cast<int64_t>(value);
}

StatusOr<Value> FilterInt(Budget&, std::string_view name, const Value& value, const Args& args) {
  HEADROOM_ASSIGN_OR_RETURN(const ValueList bound, BindArgs(name, args, {"default", "base"}, 0));
  HEADROOM_ASSIGN_OR_RETURN(const int64_t base, IntegerArg(name, bound[1], 10));
  HEADROOM_RETURN_IF_ERROR(RequireDefined(value));
  if (base < 2 || base > 36) {
    return InvalidArgument("int: the base is {}, wanted 2..36", base);
  }
  std::optional<int64_t> result;
  if (const std::optional<Number> number = AsNumber(value)) {
    result = number->is_integer ? number->integer : Truncate(number->real);
  } else if (const ProvenancedText* text = value.text()) {
    result = ParseInteger(text->text, static_cast<int>(base));
    if (!result) {
      const std::optional<double> real = ParseReal(text->text);
      result = real ? Truncate(*real) : std::nullopt;
    }
  }
  if (result) {
    return Value::Int(*result);
  }
  return bound[0].is_undefined() ? Value::Int(0) : bound[0];
}

StatusOr<Value> FilterFloat(Budget&, std::string_view name, const Value& value, const Args& args) {
  HEADROOM_ASSIGN_OR_RETURN(const ValueList bound, BindArgs(name, args, {"default"}, 0));
  HEADROOM_RETURN_IF_ERROR(RequireDefined(value));
  if (const std::optional<Number> number = AsNumber(value)) {
    return Value::Double(number->real);
  }
  if (const ProvenancedText* text = value.text()) {
    if (const std::optional<double> real = ParseReal(text->text)) {
      return Value::Double(*real);
    }
  }
  return bound[0].is_undefined() ? Value::Double(0.0) : bound[0];
}

StatusOr<Value> FilterAbs(Budget&, std::string_view name, const Value& value, const Args& args) {
  HEADROOM_RETURN_IF_ERROR(BindArgs(name, args, {}, 0).status());
  HEADROOM_RETURN_IF_ERROR(RequireDefined(value));
  const std::optional<Number> number = AsNumber(value);
  if (!number) {
    return InvalidArgument("abs wants a number, got {}", TypeName(value));
  }
  if (!number->is_integer) {
    return Value::Double(std::abs(number->real));
  }
  return number->integer < 0 ? Negate(value) : Value::Int(number->integer);
}

StatusOr<Value> FilterRound(Budget&, std::string_view name, const Value& value, const Args& args) {
  HEADROOM_ASSIGN_OR_RETURN(const ValueList bound,
                            BindArgs(name, args, {"precision", "method"}, 0));
  HEADROOM_ASSIGN_OR_RETURN(const int64_t precision, IntegerArg(name, bound[0], 0));
  HEADROOM_RETURN_IF_ERROR(RequireDefined(value));
  const std::optional<Number> number = AsNumber(value);
  if (!number || precision < -300 || precision > 300) {
    return InvalidArgument("round wants a number and a precision of at most 300");
  }
  std::string method = "common";
  if (!bound[1].is_undefined()) {
    HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText* text, TextArg(name, bound[1]));
    method = text->text;
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil" || method == "floor") {
    const double scaled = number->real * scale;
    return Value::Double((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
  }
  if (method != "common") {
    return InvalidArgument("round: the method is '{}', wanted common, ceil or floor", method);
  }
  if (number->is_integer && precision >= 0) {
    return value;
  }
  if (precision < 0) {
    return Value::Double(std::nearbyint(number->real * scale) / scale);
  }
  // Decimal digits decide, as in Python: print exactly and read back.
  const std::string digits = fmt::format("{:.{}f}", number->real, static_cast<int>(precision));
  return Value::Double(ParseReal(digits).value_or(number->real));
}

StatusOr<Value> FilterToJson(Budget& budget, std::string_view name, const Value& value,
                             const Args& args) {
  HEADROOM_ASSIGN_OR_RETURN(
      const ValueList bound,
      BindArgs(name, args, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0));
  JsonStyle style;
  style.ensure_ascii = BoolArg(bound[0], false);
  style.sort_keys = BoolArg(bound[3], false);
  if (!bound[1].is_undefined() && !bound[1].is_none()) {
    HEADROOM_ASSIGN_OR_RETURN(style.indent, IntegerArg(name, bound[1], 0));
  }
  if (!bound[2].is_undefined() && !bound[2].is_none()) {
    const ListObject* pair = bound[2].list();
    if (pair == nullptr || pair->items.size() != 2) {
      return InvalidArgument("tojson: separators wants two strings");
    }
    HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText* item, TextArg(name, pair->items[0]));
    HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText* key, TextArg(name, pair->items[1]));
    style.item_separator = item->text;
    style.key_separator = key->text;
  }
  HEADROOM_ASSIGN_OR_RETURN(std::string json, DumpJson(budget, value, style));
  return NewText(budget, FromMessage(std::move(json)));
}

StatusOr<Value> FilterAttr(Budget&, std::string_view name, const Value& value, const Args& args) {
  HEADROOM_ASSIGN_OR_RETURN(const ValueList bound, BindArgs(name, args, {"name"}, 1));
  HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText* text, TextArg(name, bound[0]));
  return GetAttribute(value, text->text);
}

constexpr FilterEntry kFilters[] = {
    {"default", FilterDefault}, {"d", FilterDefault},   {"length", FilterLength},
    {"count", FilterLength},    {"int", FilterInt},     {"float", FilterFloat},
    {"abs", FilterAbs},         {"round", FilterRound}, {"tojson", FilterToJson},
    {"attr", FilterAttr},
};

}  // namespace

const FilterEntry* FindValueFilter(std::string_view name) { return FindIn(kFilters, name); }

}  // namespace headroom::models::jinja
