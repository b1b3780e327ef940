#include "models/chat_template/value.h"

#include <algorithm>

#include "models/chat_template/value_objects.h"

namespace headroom::models {

namespace {

constexpr size_t kIndexedDictEntries = 8;  // from here on a hash beats a scan

}  // namespace

Value Value::TemplateString(std::string text) {
  return MakeText(ProvenancedText{std::move(text), {}}, /*markup=*/false);
}

Value Value::MessageString(std::string text) {
  ProvenancedText provenanced{std::move(text), {}};
  if (!provenanced.text.empty()) {
    provenanced.message_ranges.push_back({0, static_cast<int64_t>(provenanced.text.size())});
  }
  return MakeText(std::move(provenanced), /*markup=*/false);
}

Value Value::String(ProvenancedText text) { return MakeText(std::move(text), /*markup=*/false); }

Value Value::List(ValueList items) {
  auto object = std::make_shared<ListObject>();
  for (const Value& item : items) {
    object->depth = std::max(object->depth, item.depth() + 1);
  }
  object->items = std::move(items);
  return Value(Data(std::shared_ptr<const ListObject>(std::move(object))));
}

Value Value::Dict(ValueDict items) { return MakeDict(std::move(items), /*template_keys=*/false); }

const ProvenancedText* Value::text() const {
  const auto* object = std::get_if<std::shared_ptr<const TextObject>>(&data_);
  return object == nullptr ? nullptr : &(*object)->text;
}

const ListObject* Value::list() const {
  const auto* object = std::get_if<std::shared_ptr<const ListObject>>(&data_);
  return object == nullptr ? nullptr : object->get();
}

const DictObject* Value::dict() const {
  const auto* object = std::get_if<std::shared_ptr<const DictObject>>(&data_);
  return object == nullptr ? nullptr : object->get();
}

int32_t Value::depth() const {
  if (const ListObject* items = list()) {
    return items->depth;
  }
  const DictObject* entries = dict();
  return entries == nullptr ? 0 : entries->depth;
}

const Value* DictObject::Find(std::string_view key) const {
  if (!index.empty()) {
    const auto found = index.find(key);
    return found == index.end() ? nullptr : &entries[found->second].second;
  }
  for (const auto& [name, value] : entries) {
    if (name == key) {
      return &value;
    }
  }
  return nullptr;
}

Value MakeText(ProvenancedText text, bool markup) {
  auto object = std::make_shared<TextObject>();
  object->text = std::move(text);
  object->markup = markup;
  return Value(Value::Data(std::shared_ptr<const TextObject>(std::move(object))));
}

Value MakeTuple(ValueList items) {
  auto object = std::make_shared<ListObject>();
  for (const Value& item : items) {
    object->depth = std::max(object->depth, item.depth() + 1);
  }
  object->items = std::move(items);
  object->is_tuple = true;
  return Value(Value::Data(std::shared_ptr<const ListObject>(std::move(object))));
}

Value MakeDict(ValueDict entries, bool template_keys) {
  auto object = std::make_shared<DictObject>();
  object->template_keys = template_keys;
  // Views into `entries` stay valid: a string's bytes move only when the vector is changed, and
  // the index that outlives this function is built from the final vector.
  std::unordered_map<std::string_view, size_t> seen;
  std::vector<size_t> last_value(entries.size());
  std::vector<size_t> order;
  order.reserve(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto [place, inserted] = seen.emplace(entries[i].first, i);
    if (inserted) {
      order.push_back(i);
    }
    last_value[place->second] = i;
  }
  object->entries.reserve(order.size());
  for (const size_t first : order) {
    Value value = entries[last_value[first]].second;
    object->depth = std::max(object->depth, value.depth() + 1);
    object->entries.emplace_back(entries[first].first, std::move(value));
  }
  if (object->entries.size() > kIndexedDictEntries) {
    for (size_t i = 0; i < object->entries.size(); ++i) {
      object->index.emplace(object->entries[i].first, i);
    }
  }
  return Value(Value::Data(std::shared_ptr<const DictObject>(std::move(object))));
}

Value MakeUndefined(std::string why) {
  return Value(Value::Data(Undefined{std::make_shared<const std::string>(std::move(why))}));
}

}  // namespace headroom::models
