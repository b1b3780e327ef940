// Jinja's filters: `value|name(args)`.
#pragma once

#include <string_view>

#include "base/status.h"
#include "models/chat_template/budget.h"
#include "models/chat_template/call_args.h"

namespace headroom::models::jinja {

using FilterFunction = StatusOr<Value> (*)(Budget& budget, std::string_view name,
                                           const Value& value, const Args& args);

struct FilterEntry {
  std::string_view name;
  FilterFunction function;
};

// Null for a filter that Headroom does not have.
const FilterEntry* FindFilter(std::string_view name);

// The parts of the table, one a file: on text, on single values, on sequences, and those that
// choose or order items.
const FilterEntry* FindTextFilter(std::string_view name);
const FilterEntry* FindValueFilter(std::string_view name);
const FilterEntry* FindSequenceFilter(std::string_view name);
const FilterEntry* FindSelectFilter(std::string_view name);

template <size_t N>
const FilterEntry* FindIn(const FilterEntry (&entries)[N], std::string_view name) {
  for (const FilterEntry& entry : entries) {
    if (entry.name == name) {
      return &entry;
    }
  }
  return nullptr;
}

}  // namespace headroom::models::jinja
