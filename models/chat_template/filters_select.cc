// Filters that use another filter or test on every item: map, select, reject and their attr forms.
#include "models/chat_template/access.h"
#include "models/chat_template/filters.h"
#include "models/chat_template/operators.h"
#include "models/chat_template/value_tests.h"

namespace headroom::models::jinja {

namespace {

// The arguments after the first `count`, for the filter or test that they name.
Args DropFirst(const Args& args, size_t count) {
  Args rest = args;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<int64_t>(count));
  return rest;
}

StatusOr<Value> MapAttribute(Budget& budget, const Args& args, const ValueList& items) {
  HEADROOM_ASSIGN_OR_RETURN(const ValueList bound,
                            BindArgs("map", args, {"attribute", "default"}, 1));
  if (!args.positional.empty()) {
    return InvalidArgument("map wants a filter or attribute=, not both");
  }
  ValueList out;
  for (const Value& item : items) {
    HEADROOM_ASSIGN_OR_RETURN(Value mapped, GetPath(budget, item, bound[0], bound[1]));
    HEADROOM_RETURN_IF_ERROR(CheckStorable(mapped));
    out.push_back(std::move(mapped));
  }
  return NewList(budget, std::move(out));
}

StatusOr<Value> FilterMap(Budget& budget, std::string_view name, const Value& value,
                          const Args& args) {
  const DepthGuard guard(budget);  // map may name map
  HEADROOM_RETURN_IF_ERROR(guard.status());
  if (!IsTrue(value)) {
    return NewList(budget, {});
  }
  HEADROOM_ASSIGN_OR_RETURN(const ValueList items, Iterate(budget, value));
  if (args.positional.empty()) {
    return MapAttribute(budget, args, items);
  }
  HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText* filter_name, TextArg(name, args.positional[0]));
  const FilterEntry* filter = FindFilter(filter_name->text);
  if (filter == nullptr) {
    return InvalidArgument("map: the filter '{}' is not supported", filter_name->text);
  }
  const Args rest = DropFirst(args, 1);
  ValueList out;
  for (const Value& item : items) {
    HEADROOM_ASSIGN_OR_RETURN(Value mapped, filter->function(budget, filter->name, item, rest));
    HEADROOM_RETURN_IF_ERROR(CheckStorable(mapped));
    out.push_back(std::move(mapped));
  }
  return NewList(budget, std::move(out));
}

// select, reject: [test, arguments...]. selectattr, rejectattr: attribute, [test, arguments...].
StatusOr<Value> FilterSelect(Budget& budget, std::string_view name, const Value& value,
                             const Args& args) {
  if (!IsTrue(value)) {
    return NewList(budget, {});
  }
  const bool by_attribute = name.ends_with("attr");
  const bool wanted = name.starts_with("select");
  const size_t num_leading = by_attribute ? 1 : 0;
  if (args.positional.size() < num_leading) {
    return InvalidArgument("{} wants the name of an attribute", name);
  }
  const TestEntry* test = nullptr;
  Args rest;
  if (args.positional.size() > num_leading) {
    HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText* test_name,
                              TextArg(name, args.positional[num_leading]));
    test = FindTest(test_name->text);
    if (test == nullptr) {
      return InvalidArgument("{}: the test '{}' is not supported", name, test_name->text);
    }
    rest = DropFirst(args, num_leading + 1);
  }
  HEADROOM_ASSIGN_OR_RETURN(const ValueList items, Iterate(budget, value));
  ValueList out;
  for (const Value& item : items) {
    HEADROOM_RETURN_IF_ERROR(budget.Step());
    Value tested = item;
    if (by_attribute) {
      HEADROOM_ASSIGN_OR_RETURN(tested, GetPath(budget, item, args.positional[0]));
    }
    StatusOr<bool> result = IsTrue(tested);
    if (test != nullptr) {
      result = test->function(budget, test->name, tested, rest);
    }
    if (!result.ok()) {
      return result.status();
    }
    if (*result == wanted) {
      out.push_back(item);
    }
  }
  return NewList(budget, std::move(out));
}

constexpr FilterEntry kFilters[] = {
    {"map", FilterMap},           {"select", FilterSelect},     {"reject", FilterSelect},
    {"selectattr", FilterSelect}, {"rejectattr", FilterSelect},
};

}  // namespace

const FilterEntry* FindSelectFilter(std::string_view name) { return FindIn(kFilters, name); }

}  // namespace headroom::models::jinja
