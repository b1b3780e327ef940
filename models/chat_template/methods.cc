#include "models/chat_template/methods.h"

#include <algorithm>

#include "models/chat_template/access.h"
#include "models/chat_template/operators.h"
#include "models/chat_template/string_methods.h"

namespace headroom::models::jinja {

namespace {

constexpr std::string_view kListMethods[] = {"count", "index", "copy"};
constexpr std::string_view kDictMethods[] = {"get", "items", "keys", "values", "copy"};
// They change their object; Jinja's immutable sandbox refuses them.
constexpr std::string_view kListChanges[] = {"append", "clear",   "extend", "insert",
                                             "pop",    "reverse", "remove", "sort"};
constexpr std::string_view kDictChanges[] = {"clear",      "pop",    "popitem",
                                             "setdefault", "update", "fromkeys"};

template <size_t N>
bool IsOneOf(const std::string_view (&names)[N], std::string_view name) {
  return std::find(names, names + N, name) != names + N;
}

StatusOr<Value> CallListMethod(Budget& budget, const Value& object, std::string_view name,
                               const Args& args) {
  const ListObject& list = *object.list();
  if (name == "copy") {
    HEADROOM_RETURN_IF_ERROR(BindArgs(name, args, {}, 0).status());
    return object;
  }
  HEADROOM_ASSIGN_OR_RETURN(const ValueList bound, BindArgs(name, args, {"value"}, 1));
  int64_t count = 0;
  for (size_t i = 0; i < list.items.size(); ++i) {
    HEADROOM_ASSIGN_OR_RETURN(const bool same, Equal(budget, list.items[i], bound[0]));
    if (same && name == "index") {
      return Value::Int(static_cast<int64_t>(i));
    }
    count += same ? 1 : 0;
  }
  if (name == "index") {
    return InvalidArgument("list.index: the value is not in the list");
  }
  return Value::Int(count);
}

StatusOr<Value> CallDictMethod(Budget& budget, const Value& object, std::string_view name,
                               const Args& args) {
  const DictObject& dict = *object.dict();
  if (name == "get") {
    HEADROOM_ASSIGN_OR_RETURN(const ValueList bound, BindArgs(name, args, {"key", "default"}, 1));
    const Value* found = bound[0].text() == nullptr ? nullptr : dict.Find(bound[0].text()->text);
    if (found != nullptr) {
      return *found;
    }
    const bool has_default = args.positional.size() + args.named.size() > 1;
    return has_default ? bound[1] : Value::MakeNone();
  }
  HEADROOM_RETURN_IF_ERROR(BindArgs(name, args, {}, 0).status());
  if (name == "copy") {
    return object;
  }
  if (name == "keys") {
    HEADROOM_ASSIGN_OR_RETURN(ValueList keys, Iterate(budget, object));
    return NewList(budget, std::move(keys));
  }
  if (name == "items") {
    HEADROOM_ASSIGN_OR_RETURN(ValueList items, DictItems(budget, dict));
    return NewList(budget, std::move(items));
  }
  ValueList values;
  for (const auto& [key, value] : dict.entries) {
    values.push_back(value);
  }
  return NewList(budget, std::move(values));
}

StatusOr<Value> CallLoopMethod(const NamespaceObject& loop, const Args& args) {
  if (args.positional.empty() || !args.named.empty()) {
    return InvalidArgument("loop.cycle wants values to choose from");
  }
  return args.positional[static_cast<size_t>(loop.loop_index) % args.positional.size()];
}

}  // namespace

bool HasMethod(const Value& object, std::string_view name) {
  if (object.text() != nullptr) {
    return IsStringMethod(name);
  }
  if (object.list() != nullptr) {
    return IsOneOf(kListMethods, name) || IsOneOf(kListChanges, name);
  }
  if (object.dict() != nullptr) {
    return IsOneOf(kDictMethods, name) || IsOneOf(kDictChanges, name);
  }
  const auto* space = std::get_if<std::shared_ptr<NamespaceObject>>(&object.data());
  return space != nullptr && (*space)->loop_items != nullptr && name == "cycle";
}

StatusOr<Value> CallMethod(Budget& budget, const Value& object, std::string_view name,
                           const Args& args) {
  HEADROOM_RETURN_IF_ERROR(budget.Step());
  if (object.text() != nullptr) {
    return CallStringMethod(budget, object, name, args);
  }
  const bool is_list = object.list() != nullptr;
  if (is_list ? IsOneOf(kListChanges, name) : IsOneOf(kDictChanges, name)) {
    return InvalidArgument("{}.{} is not allowed: values cannot be changed", TypeName(object),
                           name);
  }
  if (is_list) {
    return CallListMethod(budget, object, name, args);
  }
  if (object.dict() != nullptr) {
    return CallDictMethod(budget, object, name, args);
  }
  return CallLoopMethod(*std::get<std::shared_ptr<NamespaceObject>>(object.data()), args);
}

}  // namespace headroom::models::jinja
