// The arithmetic half of operators.h.
#include <algorithm>
#include <cmath>
#include <limits>

#include "models/chat_template/operators.h"
#include "models/chat_template/provenance.h"
#include "models/chat_template/text_ops.h"

namespace headroom::models::jinja {

namespace {

using TextPtr = std::shared_ptr<const TextObject>;

constexpr std::string_view Spelling(Op op) {
  switch (op) {
    case Op::kAdd:
      return "+";
    case Op::kSubtract:
      return "-";
    case Op::kMultiply:
      return "*";
    case Op::kDivide:
      return "/";
    case Op::kFloorDivide:
      return "//";
    case Op::kModulo:
      return "%";
    case Op::kPower:
      return "**";
    default:
      return "operator";
  }
}

Status Unsupported(Op op, const Value& a, const Value& b) {
  HEADROOM_RETURN_IF_ERROR(RequireDefined(a));
  HEADROOM_RETURN_IF_ERROR(RequireDefined(b));
  return InvalidArgument("'{}' is not defined between {} and {}", Spelling(op), TypeName(a),
                         TypeName(b));
}

Status Overflow(Op op) { return InvalidArgument("'{}' overflows 64-bit integers", Spelling(op)); }

StatusOr<Value> IntegerPower(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) {
      return Overflow(Op::kPower);
    }
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) {
      return Overflow(Op::kPower);
    }
  }
  return Value::Int(result);
}

// // and % round towards minus infinity. b is not 0.
StatusOr<Value> IntegerDivide(Op op, int64_t a, int64_t b) {
  if (b == -1) {  // the one case that can overflow
    if (op == Op::kModulo) {
      return Value::Int(0);
    }
    return a == std::numeric_limits<int64_t>::min() ? StatusOr<Value>(Overflow(op))
                                                    : StatusOr<Value>(Value::Int(-a));
  }
  int64_t quotient = a / b;
  int64_t remainder = a % b;
  if (remainder != 0 && (remainder < 0) != (b < 0)) {
    --quotient;
    remainder += b;
  }
  return Value::Int(op == Op::kModulo ? remainder : quotient);
}

StatusOr<Value> IntegerArithmetic(Op op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Op::kAdd:
      return __builtin_add_overflow(a, b, &result) ? StatusOr<Value>(Overflow(op))
                                                   : StatusOr<Value>(Value::Int(result));
    case Op::kSubtract:
      return __builtin_sub_overflow(a, b, &result) ? StatusOr<Value>(Overflow(op))
                                                   : StatusOr<Value>(Value::Int(result));
    case Op::kMultiply:
      return __builtin_mul_overflow(a, b, &result) ? StatusOr<Value>(Overflow(op))
                                                   : StatusOr<Value>(Value::Int(result));
    case Op::kPower:
      return b < 0 ? StatusOr<Value>(
                         Value::Double(std::pow(static_cast<double>(a), static_cast<double>(b))))
                   : IntegerPower(a, b);
    default:
      return IntegerDivide(op, a, b);
  }
}

Value RealArithmetic(Op op, double a, double b) {
  switch (op) {
    case Op::kAdd:
      return Value::Double(a + b);
    case Op::kSubtract:
      return Value::Double(a - b);
    case Op::kMultiply:
      return Value::Double(a * b);
    case Op::kDivide:
      return Value::Double(a / b);
    case Op::kFloorDivide:
      return Value::Double(std::floor(a / b));
    case Op::kPower:
      return Value::Double(std::pow(a, b));
    default: {
      const double remainder = std::fmod(a, b);
      return Value::Double(remainder != 0.0 && (remainder < 0) != (b < 0) ? remainder + b
                                                                          : remainder);
    }
  }
}

StatusOr<Value> NumberArithmetic(Op op, const Number& a, const Number& b) {
  const bool divides = op == Op::kDivide || op == Op::kFloorDivide || op == Op::kModulo;
  if ((divides && b.real == 0.0) || (op == Op::kPower && a.real == 0.0 && b.real < 0.0)) {
    return InvalidArgument("division by zero");
  }
  if (a.is_integer && b.is_integer && op != Op::kDivide) {
    return IntegerArithmetic(op, a.integer, b.integer);
  }
  return RealArithmetic(op, a.real, b.real);
}

// Text + text. Plain text beside markup is escaped, as markupsafe does.
StatusOr<Value> AddText(Budget& budget, Value a, const Value& b) {
  const TextPtr& left = std::get<TextPtr>(a.data());
  const TextPtr& right = std::get<TextPtr>(b.data());
  const bool markup = left->markup || right->markup;
  if (markup && left->markup != right->markup) {
    ProvenancedText out = left->markup ? left->text : EscapeHtml(left->text);
    AppendText(out, right->markup ? right->text : EscapeHtml(right->text));
    return NewText(budget, std::move(out), true);
  }
  if (left.use_count() == 1) {
    // Nobody else sees this string: append in place, so that a chain of + is linear. The object
    // was made non-const.
    HEADROOM_RETURN_IF_ERROR(budget.Allocate(MemoryBytes(right->text)));
    AppendText(const_cast<TextObject&>(*left).text, right->text);
    return a;
  }
  HEADROOM_RETURN_IF_ERROR(budget.Allocate(MemoryBytes(left->text)));
  ProvenancedText out = left->text;
  AppendText(out, right->text);
  HEADROOM_RETURN_IF_ERROR(budget.Allocate(MemoryBytes(right->text)));
  return MakeText(std::move(out), markup);
}

StatusOr<Value> AddLists(Budget& budget, const ListObject& a, const ListObject& b) {
  ValueList items = a.items;
  items.insert(items.end(), b.items.begin(), b.items.end());
  return a.is_tuple ? NewTuple(budget, std::move(items)) : NewList(budget, std::move(items));
}

// Text or list times an integer; charged before it is made.
StatusOr<Value> Repeat(Budget& budget, const Value& value, int64_t count) {
  count = std::max<int64_t>(count, 0);
  int64_t bytes = 0;
  if (const ProvenancedText* text = value.text()) {
    if (__builtin_mul_overflow(MemoryBytes(*text), count, &bytes)) {
      return Overflow(Op::kMultiply);
    }
    HEADROOM_RETURN_IF_ERROR(budget.Allocate(bytes));
    ProvenancedText out;
    for (int64_t i = 0; i < count; ++i) {
      AppendText(out, *text);
    }
    return MakeText(std::move(out), false);
  }
  const ListObject& list = *value.list();
  if (__builtin_mul_overflow(static_cast<int64_t>(list.items.size() * sizeof(Value) + 16), count,
                             &bytes)) {
    return Overflow(Op::kMultiply);
  }
  HEADROOM_RETURN_IF_ERROR(budget.Allocate(bytes));
  ValueList items;
  for (int64_t i = 0; i < count; ++i) {
    items.insert(items.end(), list.items.begin(), list.items.end());
  }
  return list.is_tuple ? NewTuple(budget, std::move(items)) : NewList(budget, std::move(items));
}

}  // namespace

StatusOr<Value> Arithmetic(Budget& budget, Op op, Value a, const Value& b) {
  HEADROOM_RETURN_IF_ERROR(budget.Step());
  const std::optional<Number> left = AsNumber(a);
  const std::optional<Number> right = AsNumber(b);
  if (left && right) {
    return NumberArithmetic(op, *left, *right);
  }
  if (op == Op::kAdd && a.text() != nullptr && b.text() != nullptr) {
    return AddText(budget, std::move(a), b);
  }
  if (op == Op::kAdd && a.list() != nullptr && b.list() != nullptr &&
      a.list()->is_tuple == b.list()->is_tuple) {
    return AddLists(budget, *a.list(), *b.list());
  }
  if (op == Op::kMultiply && (a.text() != nullptr || a.list() != nullptr) && right &&
      right->is_integer) {
    return Repeat(budget, a, right->integer);
  }
  if (op == Op::kMultiply && (b.text() != nullptr || b.list() != nullptr) && left &&
      left->is_integer) {
    return Repeat(budget, b, left->integer);
  }
  return Unsupported(op, a, b);
}

StatusOr<Value> Negate(const Value& value) {
  const std::optional<Number> number = AsNumber(value);
  if (!number) {
    HEADROOM_RETURN_IF_ERROR(RequireDefined(value));
    return InvalidArgument("'-' is not defined for {}", TypeName(value));
  }
  if (!number->is_integer) {
    return Value::Double(-number->real);
  }
  return IntegerArithmetic(Op::kSubtract, 0, number->integer);
}

}  // namespace headroom::models::jinja
