#include "models/chat_template/access.h"

#include <charconv>
#include <optional>

#include "models/chat_template/methods.h"
#include "models/chat_template/operators.h"
#include "models/chat_template/provenance.h"
#include "models/chat_template/text_ops.h"
#include "models/chat_template/unicode.h"

namespace headroom::models::jinja {

namespace {

// As jinja2 words it: "'dict object' has no attribute 'x'", "'None' has no attribute 'x'".
std::string ObjectName(const Value& value) {
  return value.is_none() ? std::string("None") : fmt::format("{} object", TypeName(value));
}

Value NoAttribute(const Value& object, std::string_view name) {
  return MakeUndefined(
      fmt::format("'{}' has no attribute '{}'", ObjectName(object), name.substr(0, 100)));
}

Value BindMethod(const Value& receiver, std::string_view name) {
  auto callable = std::make_shared<CallableObject>();
  callable->kind = CallableKind::kMethod;
  callable->name = name;
  callable->receiver = receiver;
  return Value(Value::Data(std::shared_ptr<const CallableObject>(std::move(callable))));
}

Value LoopItem(const NamespaceObject& loop, int64_t index, std::string_view why) {
  const ValueList& items = loop.loop_items->items;
  return index >= 0 && index < static_cast<int64_t>(items.size())
             ? items[static_cast<size_t>(index)]
             : MakeUndefined(std::string(why));
}

// Nothing when `loop` has no such attribute.
std::optional<Value> LoopAttribute(const NamespaceObject& loop, std::string_view name) {
  const auto size = static_cast<int64_t>(loop.loop_items->items.size());
  const int64_t at = loop.loop_index;
  if (name == "index")
    return Value::Int(at + 1);
  if (name == "index0")
    return Value::Int(at);
  if (name == "revindex")
    return Value::Int(size - at);
  if (name == "revindex0")
    return Value::Int(size - at - 1);
  if (name == "first")
    return Value::Bool(at == 0);
  if (name == "last")
    return Value::Bool(at == size - 1);
  if (name == "length")
    return Value::Int(size);
  if (name == "depth")
    return Value::Int(1);  // only recursive loops go deeper
  if (name == "depth0")
    return Value::Int(0);
  if (name == "previtem")
    return LoopItem(loop, at - 1, "there is no previous item");
  if (name == "nextitem")
    return LoopItem(loop, at + 1, "there is no next item");
  return std::nullopt;
}

std::optional<Value> NamespaceAttribute(const NamespaceObject& space, std::string_view name) {
  if (space.loop_items != nullptr) {
    return LoopAttribute(space, name);
  }
  for (const auto& [key, value] : space.attributes) {
    if (key == name) {
      return value;
    }
  }
  return std::nullopt;
}

// Bounds of a Python slice over `size` items.
struct SliceBounds {
  int64_t begin = 0;
  int64_t count = 0;
  int64_t step = 1;
};

Status ReadBound(const Value& value, std::optional<int64_t>& bound) {
  if (value.is_none() || value.is_undefined()) {
    return OkStatus();
  }
  const std::optional<Number> number = AsNumber(value);
  if (!number || !number->is_integer) {
    return InvalidArgument("a slice wants integers, got {}", TypeName(value));
  }
  bound = number->integer;
  return OkStatus();
}

int64_t ClampBound(int64_t bound, int64_t size, int64_t low, int64_t high) {
  if (bound < 0) {
    bound = bound < -size ? -1 - size : bound;  // far below the start is just before it
    bound += size;
  }
  return std::min(std::max(bound, low), high);
}

StatusOr<SliceBounds> ResolveSlice(int64_t size, const Value& start, const Value& stop,
                                   const Value& step) {
  std::optional<int64_t> from;
  std::optional<int64_t> to;
  std::optional<int64_t> by;
  HEADROOM_RETURN_IF_ERROR(ReadBound(start, from));
  HEADROOM_RETURN_IF_ERROR(ReadBound(stop, to));
  HEADROOM_RETURN_IF_ERROR(ReadBound(step, by));
  SliceBounds bounds;
  bounds.step = by.value_or(1);
  if (bounds.step == 0) {
    return InvalidArgument("a slice's step cannot be 0");
  }
  // A step beyond the size takes one item at most, as does one of the size: keep it small.
  bounds.step = std::min(std::max(bounds.step, -size - 1), size + 1);
  const bool forward = bounds.step > 0;
  const int64_t low = forward ? 0 : -1;
  const int64_t high = forward ? size : size - 1;
  bounds.begin = from ? ClampBound(*from, size, low, high) : (forward ? 0 : size - 1);
  const int64_t end = to ? ClampBound(*to, size, low, high) : (forward ? size : -1);
  const int64_t distance = forward ? end - bounds.begin : bounds.begin - end;
  const int64_t stride = forward ? bounds.step : -bounds.step;
  bounds.count = distance <= 0 ? 0 : (distance + stride - 1) / stride;
  return bounds;
}

StatusOr<Value> GetIndexed(Budget& budget, const Value& object, int64_t index) {
  const Value missing =
      MakeUndefined(fmt::format("'{}' has no element {}", ObjectName(object), index));
  if (const ListObject* list = object.list()) {
    const auto size = static_cast<int64_t>(list->items.size());
    const int64_t at = index < 0 ? index + size : index;
    return at >= 0 && at < size ? list->items[static_cast<size_t>(at)] : missing;
  }
  const ProvenancedText* text = object.text();
  if (text == nullptr) {
    return missing;
  }
  HEADROOM_RETURN_IF_ERROR(budget.Step(static_cast<int64_t>(text->text.size() / 64)));
  const int64_t size = CountCodePoints(text->text);
  const int64_t at = index < 0 ? index + size : index;
  if (at < 0 || at >= size) {
    return missing;
  }
  return NewText(budget, SliceCodePoints(*text, at, 1, 1));
}

}  // namespace

StatusOr<Value> GetAttribute(const Value& object, std::string_view name) {
  HEADROOM_RETURN_IF_ERROR(RequireDefined(object));
  if (HasMethod(object, name)) {
    return BindMethod(object, name);
  }
  if (const DictObject* dict = object.dict()) {
    if (const Value* found = dict->Find(name)) {
      return *found;
    }
  }
  if (const auto* space = std::get_if<std::shared_ptr<NamespaceObject>>(&object.data())) {
    if (std::optional<Value> found = NamespaceAttribute(**space, name)) {
      return *found;
    }
  }
  return NoAttribute(object, name);
}

StatusOr<Value> GetItem(Budget& budget, const Value& object, const Value& index) {
  HEADROOM_RETURN_IF_ERROR(RequireDefined(object));
  if (const ProvenancedText* key = index.text()) {
    if (const DictObject* dict = object.dict()) {
      if (const Value* found = dict->Find(key->text)) {
        return *found;
      }
    }
    return GetAttribute(object, key->text);
  }
  const std::optional<Number> number = AsNumber(index);
  if (number && number->is_integer) {
    return GetIndexed(budget, object, number->integer);
  }
  HEADROOM_RETURN_IF_ERROR(RequireDefined(index));
  return MakeUndefined(
      fmt::format("'{}' has no element of type {}", ObjectName(object), TypeName(index)));
}

StatusOr<Value> GetSlice(Budget& budget, const Value& object, const Value& start, const Value& stop,
                         const Value& step) {
  HEADROOM_RETURN_IF_ERROR(RequireDefined(object));
  if (const ProvenancedText* text = object.text()) {
    const auto size = static_cast<int64_t>(text->text.size());
    HEADROOM_RETURN_IF_ERROR(budget.Step(size / 64));
    HEADROOM_ASSIGN_OR_RETURN(const SliceBounds bounds,
                              ResolveSlice(CountCodePoints(text->text), start, stop, step));
    if (bounds.step != 1) {  // needs the place of every character
      HEADROOM_RETURN_IF_ERROR(budget.Allocate(size * static_cast<int64_t>(sizeof(size_t))));
    }
    const bool markup = std::get<std::shared_ptr<const TextObject>>(object.data())->markup;
    return NewText(budget, SliceCodePoints(*text, bounds.begin, bounds.count, bounds.step), markup);
  }
  const ListObject* list = object.list();
  if (list == nullptr) {
    return InvalidArgument("a slice wants a string or list, got {}", TypeName(object));
  }
  HEADROOM_ASSIGN_OR_RETURN(
      const SliceBounds bounds,
      ResolveSlice(static_cast<int64_t>(list->items.size()), start, stop, step));
  HEADROOM_RETURN_IF_ERROR(budget.Step(bounds.count));
  ValueList items;
  items.reserve(static_cast<size_t>(bounds.count));
  for (int64_t i = 0; i < bounds.count; ++i) {
    items.push_back(list->items[static_cast<size_t>(bounds.begin + i * bounds.step)]);
  }
  return list->is_tuple ? NewTuple(budget, std::move(items)) : NewList(budget, std::move(items));
}

StatusOr<ValueList> Iterate(Budget& budget, const Value& value) {
  if (value.is_undefined()) {
    return ValueList{};
  }
  if (const ListObject* list = value.list()) {
    HEADROOM_RETURN_IF_ERROR(
        budget.Allocate(static_cast<int64_t>(list->items.size() * sizeof(Value))));
    return list->items;
  }
  ValueList items;
  if (const DictObject* dict = value.dict()) {
    for (size_t i = 0; i < dict->entries.size(); ++i) {
      HEADROOM_RETURN_IF_ERROR(
          budget.Allocate(static_cast<int64_t>(dict->entries[i].first.size() + 128)));
      items.push_back(DictKey(*dict, i));
    }
    return items;
  }
  if (const ProvenancedText* text = value.text()) {
    for (size_t i = 0; i < text->text.size();) {
      const size_t end = i + CodePointAt(text->text, i).size;
      HEADROOM_ASSIGN_OR_RETURN(Value character, NewText(budget, Slice(*text, i, end)));
      items.push_back(std::move(character));
      i = end;
    }
    return items;
  }
  return InvalidArgument("'{}' is not iterable", ObjectName(value));
}

StatusOr<Value> GetPath(Budget& budget, const Value& object, const Value& path,
                        const Value& otherwise) {
  const bool has_otherwise = !otherwise.is_undefined() && !otherwise.is_none();
  const ProvenancedText* text = path.text();
  if (text == nullptr) {
    StatusOr<Value> found = GetItem(budget, object, path);
    return found.ok() && found->is_undefined() && has_otherwise ? otherwise : found;
  }
  Value current = object;
  std::string_view rest = text->text;
  while (true) {
    HEADROOM_RETURN_IF_ERROR(budget.Step());
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    int64_t number = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    const bool is_index = !part.empty() && error == std::errc() && part.front() != '-' &&
                          end == part.data() + part.size();
    const Value key = is_index ? Value::Int(number) : Value::TemplateString(std::string(part));
    HEADROOM_ASSIGN_OR_RETURN(current, GetItem(budget, current, key));
    if (current.is_undefined() && has_otherwise) {
      current = otherwise;
    }
    if (dot == std::string_view::npos) {
      return current;
    }
    rest.remove_prefix(dot + 1);
  }
}

Value DictKey(const DictObject& dict, size_t index) {
  const std::string& key = dict.entries[index].first;
  return dict.template_keys ? Value::TemplateString(key) : Value::MessageString(key);
}

StatusOr<ValueList> DictItems(Budget& budget, const DictObject& dict) {
  ValueList items;
  for (size_t i = 0; i < dict.entries.size(); ++i) {
    HEADROOM_RETURN_IF_ERROR(
        budget.Allocate(static_cast<int64_t>(dict.entries[i].first.size() + 128)));
    HEADROOM_ASSIGN_OR_RETURN(Value pair,
                              NewTuple(budget, {DictKey(dict, i), dict.entries[i].second}));
    items.push_back(std::move(pair));
  }
  return items;
}

}  // namespace headroom::models::jinja
