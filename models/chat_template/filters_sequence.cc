// Filters that take sequences apart or put them together.
#include "models/chat_template/access.h"
#include "models/chat_template/filters.h"
#include "models/chat_template/operators.h"
#include "models/chat_template/ordering.h"
#include "models/chat_template/provenance.h"
#include "models/chat_template/text_ops.h"

namespace headroom::models::jinja {

namespace {

StatusOr<Value> FilterList(Budget& budget, std::string_view name, const Value& value,
                           const Args& args) {
  HEADROOM_RETURN_IF_ERROR(BindArgs(name, args, {}, 0).status());
  HEADROOM_ASSIGN_OR_RETURN(ValueList items, Iterate(budget, value));
  return NewList(budget, std::move(items));
}

StatusOr<Value> FilterFirstLast(Budget& budget, std::string_view name, const Value& value,
                                const Args& args) {
  HEADROOM_RETURN_IF_ERROR(BindArgs(name, args, {}, 0).status());
  HEADROOM_ASSIGN_OR_RETURN(const ValueList items, Iterate(budget, value));
  if (items.empty()) {
    return MakeUndefined(fmt::format("No {} item, sequence was empty.", name));
  }
  return name == "first" ? items.front() : items.back();
}

StatusOr<Value> FilterItems(Budget& budget, std::string_view name, const Value& value,
                            const Args& args) {
  HEADROOM_RETURN_IF_ERROR(BindArgs(name, args, {}, 0).status());
  if (value.is_undefined()) {
    return NewList(budget, {});
  }
  if (value.dict() == nullptr) {
    return InvalidArgument("Can only get item pairs from a mapping.");
  }
  HEADROOM_ASSIGN_OR_RETURN(ValueList items, DictItems(budget, *value.dict()));
  return NewList(budget, std::move(items));
}

StatusOr<Value> FilterReverse(Budget& budget, std::string_view name, const Value& value,
                              const Args& args) {
  HEADROOM_RETURN_IF_ERROR(BindArgs(name, args, {}, 0).status());
  if (value.text() != nullptr) {
    return GetSlice(budget, value, Value::MakeNone(), Value::MakeNone(), Value::Int(-1));
  }
  HEADROOM_ASSIGN_OR_RETURN(ValueList items, Iterate(budget, value));
  return NewList(budget, ValueList(items.rbegin(), items.rend()));
}

// The sort key of an item: an attribute of it, in lower case unless case counts.
StatusOr<Value> SortKey(Budget& budget, const Value& item, const Value& attribute,
                        bool case_sensitive) {
  Value key = item;
  if (!attribute.is_undefined() && !attribute.is_none()) {
    HEADROOM_ASSIGN_OR_RETURN(key, GetPath(budget, item, attribute));
  }
  if (key.text() != nullptr && !case_sensitive) {
    return NewText(budget, ChangeCase(*key.text(), CaseChange::kLower));
  }
  return key;
}

StatusOr<ValueList> SortKeys(Budget& budget, const ValueList& items, const Value& attribute,
                             bool case_sensitive) {
  ValueList keys;
  keys.reserve(items.size());
  for (const Value& item : items) {
    HEADROOM_ASSIGN_OR_RETURN(Value key, SortKey(budget, item, attribute, case_sensitive));
    keys.push_back(std::move(key));
  }
  return keys;
}

StatusOr<Value> FilterSort(Budget& budget, std::string_view name, const Value& value,
                           const Args& args) {
  HEADROOM_ASSIGN_OR_RETURN(const ValueList bound,
                            BindArgs(name, args, {"reverse", "case_sensitive", "attribute"}, 0));
  HEADROOM_ASSIGN_OR_RETURN(const ValueList items, Iterate(budget, value));
  HEADROOM_ASSIGN_OR_RETURN(const ValueList keys,
                            SortKeys(budget, items, bound[2], BoolArg(bound[1], false)));
  HEADROOM_ASSIGN_OR_RETURN(const std::vector<size_t> order,
                            SortedOrder(budget, keys, BoolArg(bound[0], false)));
  ValueList sorted;
  for (const size_t index : order) {
    sorted.push_back(items[index]);
  }
  return NewList(budget, std::move(sorted));
}

StatusOr<Value> FilterDictSort(Budget& budget, std::string_view name, const Value& value,
                               const Args& args) {
  HEADROOM_ASSIGN_OR_RETURN(const ValueList bound,
                            BindArgs(name, args, {"case_sensitive", "by", "reverse"}, 0));
  HEADROOM_RETURN_IF_ERROR(RequireDefined(value));
  if (value.dict() == nullptr) {
    return InvalidArgument("dictsort wants a dict, got {}", TypeName(value));
  }
  int64_t position = 0;
  if (!bound[1].is_undefined()) {
    HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText* by, TextArg(name, bound[1]));
    if (by->text != "key" && by->text != "value") {
      return InvalidArgument("dictsort: 'by' is '{}', wanted key or value", by->text);
    }
    position = by->text == "value" ? 1 : 0;
  }
  HEADROOM_ASSIGN_OR_RETURN(const ValueList items, DictItems(budget, *value.dict()));
  HEADROOM_ASSIGN_OR_RETURN(const ValueList keys, SortKeys(budget, items, Value::Int(position),
                                                           BoolArg(bound[0], false)));
  HEADROOM_ASSIGN_OR_RETURN(const std::vector<size_t> order,
                            SortedOrder(budget, keys, BoolArg(bound[2], false)));
  ValueList sorted;
  for (const size_t index : order) {
    sorted.push_back(items[index]);
  }
  return NewList(budget, std::move(sorted));
}

StatusOr<Value> FilterMinMax(Budget& budget, std::string_view name, const Value& value,
                             const Args& args) {
  HEADROOM_ASSIGN_OR_RETURN(const ValueList bound,
                            BindArgs(name, args, {"case_sensitive", "attribute"}, 0));
  HEADROOM_ASSIGN_OR_RETURN(const ValueList items, Iterate(budget, value));
  if (items.empty()) {
    return MakeUndefined("No aggregated item, sequence was empty.");
  }
  HEADROOM_ASSIGN_OR_RETURN(const ValueList keys,
                            SortKeys(budget, items, bound[1], BoolArg(bound[0], false)));
  size_t best = 0;
  for (size_t i = 1; i < keys.size(); ++i) {
    HEADROOM_ASSIGN_OR_RETURN(const bool better, name == "min" ? Less(budget, keys[i], keys[best])
                                                               : Less(budget, keys[best], keys[i]));
    best = better ? i : best;
  }
  return items[best];
}

StatusOr<Value> FilterUnique(Budget& budget, std::string_view name, const Value& value,
                             const Args& args) {
  HEADROOM_ASSIGN_OR_RETURN(const ValueList bound,
                            BindArgs(name, args, {"case_sensitive", "attribute"}, 0));
  HEADROOM_ASSIGN_OR_RETURN(const ValueList items, Iterate(budget, value));
  HEADROOM_ASSIGN_OR_RETURN(const ValueList keys,
                            SortKeys(budget, items, bound[1], BoolArg(bound[0], false)));
  ValueList unique;
  ValueList seen;
  for (size_t i = 0; i < keys.size(); ++i) {
    bool is_new = true;
    for (size_t j = 0; j < seen.size() && is_new; ++j) {
      HEADROOM_ASSIGN_OR_RETURN(const bool same, Equal(budget, seen[j], keys[i]));
      is_new = !same;
    }
    if (is_new) {
      seen.push_back(keys[i]);
      unique.push_back(items[i]);
    }
  }
  return NewList(budget, std::move(unique));
}

StatusOr<Value> FilterSum(Budget& budget, std::string_view name, const Value& value,
                          const Args& args) {
  HEADROOM_ASSIGN_OR_RETURN(const ValueList bound, BindArgs(name, args, {"attribute", "start"}, 0));
  HEADROOM_ASSIGN_OR_RETURN(const ValueList items, Iterate(budget, value));
  Value sum = bound[1].is_undefined() ? Value::Int(0) : bound[1];
  for (const Value& item : items) {
    HEADROOM_ASSIGN_OR_RETURN(const Value term,
                              SortKey(budget, item, bound[0], /*case_sensitive=*/true));
    HEADROOM_ASSIGN_OR_RETURN(sum, Arithmetic(budget, Op::kAdd, std::move(sum), term));
  }
  return sum;
}

StatusOr<Value> FilterBatch(Budget& budget, std::string_view name, const Value& value,
                            const Args& args) {
  HEADROOM_ASSIGN_OR_RETURN(const ValueList bound,
                            BindArgs(name, args, {"linecount", "fill_with"}, 1));
  HEADROOM_ASSIGN_OR_RETURN(const int64_t size, IntegerArg(name, bound[0], 0));
  HEADROOM_ASSIGN_OR_RETURN(const ValueList items, Iterate(budget, value));
  if (size < 1) {
    return InvalidArgument("batch: the size is {}, wanted at least 1", size);
  }
  ValueList batches;
  for (size_t begin = 0; begin < items.size();) {
    const size_t count = std::min(items.size() - begin, static_cast<size_t>(size));
    ValueList batch(items.begin() + static_cast<int64_t>(begin),
                    items.begin() + static_cast<int64_t>(begin + count));
    begin += count;
    if (!bound[1].is_undefined() && !bound[1].is_none()) {
      HEADROOM_RETURN_IF_ERROR(CheckStorable(bound[1]));
      int64_t bytes = 0;
      if (__builtin_mul_overflow(size, static_cast<int64_t>(sizeof(Value)), &bytes)) {
        return ResourceExhausted("batch: a size of {} is too much", size);
      }
      HEADROOM_RETURN_IF_ERROR(budget.Allocate(bytes));
      batch.resize(static_cast<size_t>(size), bound[1]);
    }
    HEADROOM_ASSIGN_OR_RETURN(Value list, NewList(budget, std::move(batch)));
    batches.push_back(std::move(list));
  }
  return NewList(budget, std::move(batches));
}

constexpr FilterEntry kFilters[] = {
    {"list", FilterList},         {"first", FilterFirstLast}, {"last", FilterFirstLast},
    {"items", FilterItems},       {"reverse", FilterReverse}, {"sort", FilterSort},
    {"dictsort", FilterDictSort}, {"min", FilterMinMax},      {"max", FilterMinMax},
    {"unique", FilterUnique},     {"sum", FilterSum},         {"batch", FilterBatch},
};

}  // namespace

const FilterEntry* FindSequenceFilter(std::string_view name) { return FindIn(kFilters, name); }

}  // namespace headroom::models::jinja
