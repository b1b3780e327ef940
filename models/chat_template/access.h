// Reaching into values: attributes, subscripts, slices, iteration.
#pragma once

#include <string_view>

#include "base/status.h"
#include "models/chat_template/budget.h"
#include "models/chat_template/value.h"

namespace headroom::models::jinja {

// `object.name`: a method, else a key of a dict or an attribute of a namespace, else undefined.
// InvalidArgument when `object` is undefined.
StatusOr<Value> GetAttribute(const Value& object, std::string_view name);

// `object[index]`: an item or key, else (for a string index) a method, else undefined.
StatusOr<Value> GetItem(Budget& budget, const Value& object, const Value& index);

// `object[start:stop:step]` of text or lists; none or undefined bounds are open.
StatusOr<Value> GetSlice(Budget& budget, const Value& object, const Value& start, const Value& stop,
                         const Value& step);

// What a for loop goes over: items, keys, characters; nothing for undefined.
StatusOr<ValueList> Iterate(Budget& budget, const Value& value);

// "a.b.0" as the attribute argument of filters means it: keys and indices. `otherwise` stands in
// for every part that is undefined, unless it is none or undefined itself.
StatusOr<Value> GetPath(Budget& budget, const Value& object, const Value& path,
                        const Value& otherwise = Value());

// [key, value] tuples of a dict.
StatusOr<ValueList> DictItems(Budget& budget, const DictObject& dict);
Value DictKey(const DictObject& dict, size_t index);

}  // namespace headroom::models::jinja
