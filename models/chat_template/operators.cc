#include "models/chat_template/operators.h"

#include "models/chat_template/text_ops.h"

namespace headroom::models::jinja {

namespace {

StatusOr<bool> EqualLists(Budget& budget, const ListObject& a, const ListObject& b) {
  if (a.items.size() != b.items.size() || a.is_tuple != b.is_tuple) {
    return false;
  }
  for (size_t i = 0; i < a.items.size(); ++i) {
    HEADROOM_ASSIGN_OR_RETURN(const bool same, Equal(budget, a.items[i], b.items[i]));
    if (!same) {
      return false;
    }
  }
  return true;
}

StatusOr<bool> EqualDicts(Budget& budget, const DictObject& a, const DictObject& b) {
  if (a.entries.size() != b.entries.size()) {
    return false;
  }
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.Find(key);
    if (other == nullptr) {
      return false;
    }
    HEADROOM_ASSIGN_OR_RETURN(const bool same, Equal(budget, value, *other));
    if (!same) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::optional<Number> AsNumber(const Value& value) {
  if (const bool* flag = std::get_if<bool>(&value.data())) {
    return Number{true, *flag ? 1 : 0, *flag ? 1.0 : 0.0};
  }
  if (const int64_t* integer = std::get_if<int64_t>(&value.data())) {
    return Number{true, *integer, static_cast<double>(*integer)};
  }
  if (const double* real = std::get_if<double>(&value.data())) {
    return Number{false, 0, *real};
  }
  return std::nullopt;
}

bool IsTrue(const Value& value) {
  if (value.is_undefined() || value.is_none()) {
    return false;
  }
  if (const std::optional<Number> number = AsNumber(value)) {
    return number->is_integer ? number->integer != 0 : number->real != 0.0;
  }
  if (const ProvenancedText* text = value.text()) {
    return !text->text.empty();
  }
  if (const ListObject* list = value.list()) {
    return !list->items.empty();
  }
  if (const DictObject* dict = value.dict()) {
    return !dict->entries.empty();
  }
  return true;
}

std::string_view TypeName(const Value& value) {
  if (const ListObject* list = value.list()) {
    return list->is_tuple ? "tuple" : "list";
  }
  switch (value.data().index()) {
    case 0:
      return "Undefined";
    case 1:
      return "NoneType";
    case 2:
      return "bool";
    case 3:
      return "int";
    case 4:
      return "float";
    case 5:
      return "str";
    case 7:
      return "dict";
    case 8:
      return "Namespace";
    default:
      return "function";
  }
}

Status RequireDefined(const Value& value) {
  if (const Undefined* undefined = std::get_if<Undefined>(&value.data())) {
    return InvalidArgument("{}",
                           undefined->why == nullptr ? "a value is undefined" : *undefined->why);
  }
  return OkStatus();
}

StatusOr<bool> Equal(Budget& budget, const Value& a, const Value& b) {
  HEADROOM_RETURN_IF_ERROR(budget.Step());
  const std::optional<Number> left = AsNumber(a);
  const std::optional<Number> right = AsNumber(b);
  if (left && right) {
    return left->is_integer && right->is_integer ? left->integer == right->integer
                                                 : left->real == right->real;
  }
  if (a.data().index() != b.data().index()) {
    return false;
  }
  if (const ProvenancedText* text = a.text()) {
    HEADROOM_RETURN_IF_ERROR(budget.Step(static_cast<int64_t>(text->text.size() / 256)));
    return text->text == b.text()->text;
  }
  if (const ListObject* list = a.list()) {
    return list == b.list() ? StatusOr<bool>(true) : EqualLists(budget, *list, *b.list());
  }
  if (const DictObject* dict = a.dict()) {
    return dict == b.dict() ? StatusOr<bool>(true) : EqualDicts(budget, *dict, *b.dict());
  }
  if (const auto* space = std::get_if<std::shared_ptr<NamespaceObject>>(&a.data())) {
    return *space == std::get<std::shared_ptr<NamespaceObject>>(b.data());
  }
  if (const auto* callable = std::get_if<std::shared_ptr<const CallableObject>>(&a.data())) {
    return *callable == std::get<std::shared_ptr<const CallableObject>>(b.data());
  }
  return true;  // two undefined, two none
}

StatusOr<bool> Less(Budget& budget, const Value& a, const Value& b) {
  HEADROOM_RETURN_IF_ERROR(budget.Step());
  const std::optional<Number> left = AsNumber(a);
  const std::optional<Number> right = AsNumber(b);
  if (left && right) {
    return left->is_integer && right->is_integer ? left->integer < right->integer
                                                 : left->real < right->real;
  }
  if (a.text() != nullptr && b.text() != nullptr) {
    // UTF-8 sorts by bytes as by code points.
    HEADROOM_RETURN_IF_ERROR(budget.Step(static_cast<int64_t>(a.text()->text.size() / 256)));
    return a.text()->text < b.text()->text;
  }
  if (a.list() != nullptr && b.list() != nullptr) {
    const ValueList& first = a.list()->items;
    const ValueList& second = b.list()->items;
    for (size_t i = 0; i < first.size() && i < second.size(); ++i) {
      HEADROOM_ASSIGN_OR_RETURN(const bool same, Equal(budget, first[i], second[i]));
      if (!same) {
        return Less(budget, first[i], second[i]);
      }
    }
    return first.size() < second.size();
  }
  HEADROOM_RETURN_IF_ERROR(RequireDefined(a));
  HEADROOM_RETURN_IF_ERROR(RequireDefined(b));
  return InvalidArgument("{} and {} cannot be ordered", TypeName(a), TypeName(b));
}

StatusOr<bool> Contains(Budget& budget, const Value& container, const Value& item) {
  HEADROOM_RETURN_IF_ERROR(budget.Step());
  if (container.is_undefined()) {
    return false;
  }
  if (const ProvenancedText* text = container.text()) {
    if (item.text() == nullptr) {
      HEADROOM_RETURN_IF_ERROR(RequireDefined(item));
      return InvalidArgument("'in' wants a string to look for in a string, got {}", TypeName(item));
    }
    HEADROOM_RETURN_IF_ERROR(budget.Step(static_cast<int64_t>(text->text.size() / 64)));
    return FindBytes(text->text, item.text()->text, 0) != std::string::npos;
  }
  if (const DictObject* dict = container.dict()) {
    return item.text() != nullptr && dict->Find(item.text()->text) != nullptr;
  }
  if (const ListObject* list = container.list()) {
    for (const Value& candidate : list->items) {
      HEADROOM_ASSIGN_OR_RETURN(const bool same, Equal(budget, candidate, item));
      if (same) {
        return true;
      }
    }
    return false;
  }
  return InvalidArgument("'in' wants a string, list or dict, got {}", TypeName(container));
}

StatusOr<bool> Compare(Budget& budget, Op op, const Value& a, const Value& b) {
  StatusOr<bool> result = false;
  switch (op) {
    case Op::kEqual:
      return Equal(budget, a, b);
    case Op::kNotEqual:
      result = Equal(budget, a, b);
      break;
    case Op::kLess:
      return Less(budget, a, b);
    case Op::kGreater:
      return Less(budget, b, a);
    case Op::kLessEqual:
    case Op::kGreaterEqual: {
      // Not the negation of the opposite: NaN compares false either way.
      result = op == Op::kLessEqual ? Less(budget, a, b) : Less(budget, b, a);
      return !result.ok() || *result ? result : Equal(budget, a, b);
    }
    case Op::kIn:
      return Contains(budget, b, a);
    default:
      result = Contains(budget, b, a);
      break;
  }
  return result.ok() ? StatusOr<bool>(!*result) : result;
}

}  // namespace headroom::models::jinja
