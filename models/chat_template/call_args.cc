#include "models/chat_template/call_args.h"

#include <algorithm>

#include "models/chat_template/operators.h"

namespace headroom::models::jinja {

StatusOr<ValueList> BindArgs(std::string_view function, const Args& args,
                             const std::vector<std::string_view>& names, size_t num_required) {
  if (args.positional.size() > names.size()) {
    return InvalidArgument("{} takes at most {} arguments, got {}", function, names.size(),
                           args.positional.size());
  }
  ValueList bound = args.positional;
  bound.resize(names.size());
  std::vector<bool> given(names.size(), false);
  std::fill(given.begin(), given.begin() + static_cast<int64_t>(args.positional.size()), true);
  for (const auto& [name, value] : args.named) {
    const auto place = std::ranges::find(names, name);
    if (place == names.end()) {
      return InvalidArgument("{} has no argument '{}'", function, name);
    }
    const auto index = static_cast<size_t>(place - names.begin());
    if (given[index]) {
      return InvalidArgument("{} got its argument '{}' twice", function, name);
    }
    given[index] = true;
    bound[index] = value;
  }
  for (size_t i = 0; i < num_required; ++i) {
    if (!given[i]) {
      return InvalidArgument("{} wants an argument '{}'", function, names[i]);
    }
  }
  return bound;
}

StatusOr<int64_t> IntegerArg(std::string_view function, const Value& value, int64_t otherwise) {
  if (value.is_undefined() || value.is_none()) {
    return otherwise;
  }
  const std::optional<Number> number = AsNumber(value);
  if (!number || !number->is_integer) {
    return InvalidArgument("{} wants an integer, got {}", function, TypeName(value));
  }
  return number->integer;
}

StatusOr<const ProvenancedText*> TextArg(std::string_view function, const Value& value) {
  if (const ProvenancedText* text = value.text()) {
    return text;
  }
  HEADROOM_RETURN_IF_ERROR(RequireDefined(value));
  return InvalidArgument("{} wants a string, got {}", function, TypeName(value));
}

bool BoolArg(const Value& value, bool otherwise) {
  return value.is_undefined() ? otherwise : IsTrue(value);
}

}  // namespace headroom::models::jinja
