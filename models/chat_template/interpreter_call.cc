// Macros and functions; see interpreter.h.
#include <algorithm>

#include "models/chat_template/interpreter.h"
#include "models/chat_template/methods.h"
#include "models/chat_template/operators.h"
#include "models/chat_template/printing.h"
#include "models/chat_template/provenance.h"
#include "models/chat_template/strftime.h"

namespace headroom::models::jinja {

namespace {

constexpr int64_t kMaxRangeItems = 100'000;  // as Jinja's sandbox has it

}  // namespace

StatusOr<Value> Interpreter::Call(const Value& callee, const Args& args) {
  HEADROOM_RETURN_IF_ERROR(RequireDefined(callee));
  const auto* callable = std::get_if<std::shared_ptr<const CallableObject>>(&callee.data());
  if (callable == nullptr) {
    return InvalidArgument("'{}' object is not callable", TypeName(callee));
  }
  switch ((*callable)->kind) {
    case CallableKind::kMacro:
    case CallableKind::kCaller:
      return CallMacro(**callable, args);
    case CallableKind::kMethod:
      return CallMethod(budget_, (*callable)->receiver, (*callable)->name, args);
    case CallableKind::kGlobal:
      break;
  }
  return CallGlobal((*callable)->name, args);
}

StatusOr<Value> Interpreter::CallMacro(const CallableObject& macro, const Args& args) {
  const DepthGuard guard(budget_);
  HEADROOM_RETURN_IF_ERROR(guard.status());
  const std::vector<Parameter>& parameters = macro.macro->parameters;
  if (args.positional.size() > parameters.size()) {
    return InvalidArgument("macro '{}' takes not more than {} arguments, got {}", macro.name,
                           parameters.size(), args.positional.size());
  }
  Frame scope{macro.frame, {}};
  std::vector<bool> given(parameters.size(), false);
  for (size_t i = 0; i < args.positional.size(); ++i) {
    scope.variables.emplace_back(parameters[i].name, args.positional[i]);
    given[i] = true;
  }
  for (const auto& [name, value] : args.named) {
    const auto place =
        std::ranges::find_if(parameters, [&, &name = name](const Parameter& parameter) {
          return program_.names[static_cast<size_t>(parameter.name)] == name;
        });
    const auto index = static_cast<size_t>(place - parameters.begin());
    if (place == parameters.end() && name == "caller") {
      scope.variables.emplace_back(caller_name_, value);  // the call block interned the name
      continue;
    }
    if (place == parameters.end() || given[index]) {
      return InvalidArgument("macro '{}' has no argument '{}' left to set", macro.name, name);
    }
    scope.variables.emplace_back(parameters[index].name, value);
    given[index] = true;
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (given[i]) {
      continue;
    }
    Value value =
        MakeUndefined(fmt::format("parameter '{}' was not provided",
                                  program_.names[static_cast<size_t>(parameters[i].name)]));
    if (parameters[i].default_value != nullptr) {
      HEADROOM_ASSIGN_OR_RETURN(value, Evaluate(*parameters[i].default_value, scope));
    }
    scope.variables.emplace_back(parameters[i].name, std::move(value));
  }
  Sink sink;
  HEADROOM_RETURN_IF_ERROR(RunBlock(macro.macro->blocks[0], scope, sink).status());
  return NewText(budget_, std::move(sink.text));
}

StatusOr<Value> Interpreter::CallGlobal(std::string_view name, const Args& args) {
  if (name == "range") {
    return CallRange(args);
  }
  if (name == "namespace") {
    return CallNamespace(args);
  }
  if (name == "dict") {
    return CallDict(args);
  }
  if (name == "strftime_now") {
    return CallStrftime(args);
  }
  return RaiseException(args);
}

StatusOr<Value> Interpreter::CallRange(const Args& args) {
  int64_t bounds[3] = {0, 0, 1};
  HEADROOM_ASSIGN_OR_RETURN(const ValueList bound,
                            BindArgs("range", args, {"start", "stop", "step"}, 1));
  for (size_t i = 0; i < args.positional.size(); ++i) {
    HEADROOM_RETURN_IF_ERROR(RequireDefined(bound[i]));
    HEADROOM_ASSIGN_OR_RETURN(bounds[i], IntegerArg("range", bound[i], bounds[i]));
  }
  auto [start, stop, step] = bounds;
  if (args.positional.size() == 1) {
    std::swap(start, stop);
  }
  if (step == 0) {
    return InvalidArgument("range: the step cannot be 0");
  }
  // 128 bits hold every difference of 64-bit integers.
  const __int128 distance =
      step > 0 ? static_cast<__int128>(stop) - start : static_cast<__int128>(start) - stop;
  const __int128 stride = step > 0 ? static_cast<__int128>(step) : -static_cast<__int128>(step);
  const __int128 count = distance <= 0 ? 0 : (distance + stride - 1) / stride;
  if (count > kMaxRangeItems) {
    return ResourceExhausted("range: more than {} items", kMaxRangeItems);
  }
  ValueList items;
  for (__int128 i = 0; i < count; ++i) {
    items.push_back(Value::Int(static_cast<int64_t>(start + i * step)));
  }
  return NewList(budget_, std::move(items));
}

StatusOr<Value> Interpreter::CallNamespace(const Args& args) {
  auto space = std::make_shared<NamespaceObject>();
  if (args.positional.size() > 1) {
    return InvalidArgument("namespace takes one dict and names");
  }
  if (!args.positional.empty()) {
    const DictObject* dict = args.positional[0].dict();
    if (dict == nullptr) {
      return InvalidArgument("namespace wants a dict, got {}", TypeName(args.positional[0]));
    }
    space->attributes = dict->entries;
  }
  for (const auto& [name, value] : args.named) {
    HEADROOM_RETURN_IF_ERROR(CheckStorable(value));
    const auto place = std::ranges::find_if(
        space->attributes,
        [&name = name](const auto& attribute) { return attribute.first == name; });
    if (place != space->attributes.end()) {
      place->second = value;
    } else {
      space->attributes.emplace_back(name, value);
    }
  }
  HEADROOM_RETURN_IF_ERROR(
      budget_.Allocate(static_cast<int64_t>(space->attributes.size() * 128 + 128)));
  return Value(Value::Data(std::move(space)));
}

StatusOr<Value> Interpreter::CallDict(const Args& args) {
  ValueDict entries;
  bool template_keys = true;
  if (args.positional.size() > 1) {
    return InvalidArgument("dict takes one dict and names");
  }
  if (!args.positional.empty()) {
    const DictObject* dict = args.positional[0].dict();
    if (dict == nullptr) {
      return InvalidArgument("dict wants a dict, got {}", TypeName(args.positional[0]));
    }
    entries = dict->entries;
    template_keys = dict->template_keys;
  }
  for (const auto& [name, value] : args.named) {
    HEADROOM_RETURN_IF_ERROR(CheckStorable(value));
    entries.emplace_back(name, value);
  }
  return NewDict(budget_, std::move(entries), template_keys);
}

StatusOr<Value> Interpreter::RaiseException(const Args& args) {
  HEADROOM_ASSIGN_OR_RETURN(const ValueList bound,
                            BindArgs("raise_exception", args, {"message"}, 1));
  HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText text, ToText(budget_, bound[0]));
  error_is_located_ = true;  // the template's own words, unchanged
  return InvalidArgument("{}", text.text);
}

StatusOr<Value> Interpreter::CallStrftime(const Args& args) {
  HEADROOM_ASSIGN_OR_RETURN(const ValueList bound, BindArgs("strftime_now", args, {"format"}, 1));
  HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText* format, TextArg("strftime_now", bound[0]));
  HEADROOM_RETURN_IF_ERROR(budget_.Allocate(static_cast<int64_t>(format->text.size())));
  HEADROOM_ASSIGN_OR_RETURN(std::string text, FormatTime(format->text, *input_.local_time_s));
  return NewText(budget_, FromMessage(std::move(text)));
}

}  // namespace headroom::models::jinja
