// Statements; see interpreter.h.
#include "models/chat_template/interpreter.h"

#include <algorithm>

#include "models/chat_template/access.h"
#include "models/chat_template/filters.h"
#include "models/chat_template/operators.h"
#include "models/chat_template/printing.h"
#include "models/chat_template/provenance.h"

namespace headroom::models::jinja {

namespace {

// Variables of a scope are looked through one by one; what many of them cost.
constexpr size_t kVariablesPerStep = 32;

void SetVariable(Frame& frame, int32_t name, Value value) {
  for (auto& [known, current] : frame.variables) {
    if (known == name) {
      current = std::move(value);
      return;
    }
  }
  frame.variables.emplace_back(name, std::move(value));
}

Value MakeGlobalFunction(std::string_view name) {
  auto callable = std::make_shared<CallableObject>();
  callable->kind = CallableKind::kGlobal;
  callable->name = name;
  return Value(Value::Data(std::shared_ptr<const CallableObject>(std::move(callable))));
}

Value MakeMacro(CallableKind kind, std::string name, const Stmt& stmt, Frame& frame) {
  auto callable = std::make_shared<CallableObject>();
  callable->kind = kind;
  callable->name = std::move(name);
  callable->macro = &stmt;
  callable->frame = &frame;
  return Value(Value::Data(std::shared_ptr<const CallableObject>(std::move(callable))));
}

Status CheckInputDepth(const Value& value) {
  return value.depth() <= kMaxValueDepth / 2
             ? OkStatus()
             : InvalidArgument("the conversation is nested more than {} deep", kMaxValueDepth / 2);
}

}  // namespace

Interpreter::Interpreter(const Program& program, const TemplateLimits& limits,
                         const ChatInput& input, const Clock& clock)
    : program_(program), input_(input), budget_(limits, clock) {
  globals_.resize(program.names.size());
  has_global_.resize(program.names.size(), false);
  for (size_t i = 0; i < program.names.size(); ++i) {
    name_index_.emplace_back(program.names[i], static_cast<int32_t>(i));
  }
  std::ranges::sort(name_index_);
  AddGlobals(input);
}

void Interpreter::SetGlobal(std::string_view name, Value value) {
  const auto place = std::ranges::lower_bound(name_index_, name, {},
                                              [](const auto& entry) { return entry.first; });
  if (place == name_index_.end() || place->first != name) {
    return;  // the template never names it
  }
  const auto index = static_cast<size_t>(place->second);
  globals_[index] = std::move(value);
  has_global_[index] = true;
}

void Interpreter::AddGlobals(const ChatInput& input) {
  for (const std::string_view name : {"range", "namespace", "dict", "raise_exception"}) {
    SetGlobal(name, MakeGlobalFunction(name));
  }
  if (input.local_time_s) {
    SetGlobal("strftime_now", MakeGlobalFunction("strftime_now"));
  }
  for (const auto& [name, value] : input.variables) {
    SetGlobal(name, value);
  }
  // After the variables: none of them may stand in for the conversation or the special tokens.
  SetGlobal("messages", input.messages);
  if (!input.tools.is_undefined()) {
    SetGlobal("tools", input.tools);
  }
  SetGlobal("add_generation_prompt", Value::Bool(input.add_generation_prompt));
  SetGlobal("bos_token", Value::TemplateString(input.bos_token));
  SetGlobal("eos_token", Value::TemplateString(input.eos_token));
  for (const auto& [name, index] : name_index_) {
    if (name == "caller") {
      caller_name_ = index;
    } else if (name == "loop") {
      loop_name_ = index;
    }
  }
}

Status Interpreter::Located(Position position, const Status& status) {
  if (error_is_located_) {
    return status;
  }
  error_is_located_ = true;
  return MakeStatus(status.code(),
                    fmt::format("{} (chat template, line {}, column {})", StatusMessage(status),
                                position.line, position.column));
}

StatusOr<ProvenancedText> Interpreter::Run() {
  HEADROOM_RETURN_IF_ERROR(CheckInputDepth(input_.messages));
  HEADROOM_RETURN_IF_ERROR(CheckInputDepth(input_.tools));
  for (const auto& [name, value] : input_.variables) {
    HEADROOM_RETURN_IF_ERROR(CheckInputDepth(value));
  }
  Frame frame;
  Sink sink;
  sink.is_output = true;
  HEADROOM_RETURN_IF_ERROR(RunBlock(program_.body, frame, sink).status());
  return std::move(sink.text);
}

StatusOr<Interpreter::Flow> Interpreter::RunBlock(const Block& block, Frame& frame, Sink& sink) {
  const DepthGuard guard(budget_);
  if (!guard.status().ok()) {
    return block.empty() ? guard.status() : Located(block[0]->position, guard.status());
  }
  for (const auto& stmt : block) {
    StatusOr<Flow> flow = RunStmt(*stmt, frame, sink);
    if (!flow.ok()) {
      return Located(stmt->position, flow.status());
    }
    if (*flow != Flow::kNext) {
      return flow;
    }
  }
  return Flow::kNext;
}

StatusOr<Interpreter::Flow> Interpreter::RunStmt(const Stmt& stmt, Frame& frame, Sink& sink) {
  HEADROOM_RETURN_IF_ERROR(
      budget_.Step(1 + static_cast<int64_t>(frame.variables.size() / kVariablesPerStep)));
  Status status;
  switch (stmt.kind) {
    case StmtKind::kText:
      status = Write(stmt.text, sink);
      break;
    case StmtKind::kOutput:
      status = RunOutput(stmt, frame, sink);
      break;
    case StmtKind::kIf:
      return RunIf(stmt, frame, sink);
    case StmtKind::kFor:
      return RunFor(stmt, frame, sink);
    case StmtKind::kWith:
      return RunWith(stmt, frame, sink);
    case StmtKind::kSet:
      status = RunSet(stmt, frame);
      break;
    case StmtKind::kSetBlock: {
      HEADROOM_ASSIGN_OR_RETURN(Value value, RunCaptured(stmt, frame));
      status = Assign(stmt.targets[0], std::move(value), frame);
      break;
    }
    case StmtKind::kFilterBlock: {
      HEADROOM_ASSIGN_OR_RETURN(const Value value, RunCaptured(stmt, frame));
      status = Write(value, sink);
      break;
    }
    case StmtKind::kMacro:
      SetVariable(frame, stmt.name,
                  MakeMacro(CallableKind::kMacro, program_.names[static_cast<size_t>(stmt.name)],
                            stmt, frame));
      break;
    case StmtKind::kCallBlock:
      status = RunCallBlock(stmt, frame, sink);
      break;
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  HEADROOM_RETURN_IF_ERROR(status);
  return Flow::kNext;
}

Status Interpreter::Write(const Value& value, Sink& sink) {
  const ProvenancedText* text = value.text();
  ProvenancedText printed;
  if (text == nullptr) {
    HEADROOM_ASSIGN_OR_RETURN(printed, ToText(budget_, value));
    text = &printed;
  }
  const auto bytes = static_cast<int64_t>(text->text.size());
  HEADROOM_RETURN_IF_ERROR(
      budget_.Allocate(static_cast<int64_t>(text->message_ranges.size() * sizeof(ByteRange))));
  HEADROOM_RETURN_IF_ERROR(sink.is_output ? budget_.Output(bytes) : budget_.Allocate(bytes));
  AppendText(sink.text, *text);
  return OkStatus();
}

Status Interpreter::RunOutput(const Stmt& stmt, Frame& frame, Sink& sink) {
  for (const ExprPtr& expr : stmt.exprs) {
    HEADROOM_ASSIGN_OR_RETURN(const Value value, Evaluate(*expr, frame));
    HEADROOM_RETURN_IF_ERROR(Write(value, sink));
  }
  return OkStatus();
}

StatusOr<Interpreter::Flow> Interpreter::RunIf(const Stmt& stmt, Frame& frame, Sink& sink) {
  for (size_t i = 0; i < stmt.exprs.size(); ++i) {
    HEADROOM_ASSIGN_OR_RETURN(const Value condition, Evaluate(*stmt.exprs[i], frame));
    if (IsTrue(condition)) {
      return RunBlock(stmt.blocks[i], frame, sink);
    }
  }
  return stmt.blocks.size() > stmt.exprs.size() ? RunBlock(stmt.blocks.back(), frame, sink)
                                                : StatusOr<Flow>(Flow::kNext);
}

// The items to loop over, after the loop's own `if`.
StatusOr<ValueList> Interpreter::LoopItems(const Stmt& stmt, Frame& frame) {
  HEADROOM_ASSIGN_OR_RETURN(const Value source, Evaluate(*stmt.exprs[0], frame));
  HEADROOM_ASSIGN_OR_RETURN(ValueList items, Iterate(budget_, source));
  if (stmt.exprs[1] == nullptr) {
    return items;
  }
  ValueList kept;
  for (Value& item : items) {
    Frame scope{&frame, {}};
    HEADROOM_RETURN_IF_ERROR(AssignAll(stmt, item, scope));
    HEADROOM_ASSIGN_OR_RETURN(const Value wanted, Evaluate(*stmt.exprs[1], scope));
    if (IsTrue(wanted)) {
      kept.push_back(std::move(item));
    }
  }
  return kept;
}

StatusOr<Interpreter::Flow> Interpreter::RunFor(const Stmt& stmt, Frame& frame, Sink& sink) {
  HEADROOM_ASSIGN_OR_RETURN(ValueList items, LoopItems(stmt, frame));
  if (items.empty()) {
    if (stmt.blocks.size() < 2) {
      return Flow::kNext;
    }
    Frame scope{&frame, {}};
    return RunBlock(stmt.blocks[1], scope, sink);
  }
  auto list = std::make_shared<ListObject>();
  list->items = std::move(items);
  const auto loop = std::make_shared<NamespaceObject>();
  loop->loop_items = list;
  const Value loop_value{Value::Data(loop)};
  for (size_t i = 0; i < list->items.size(); ++i) {
    HEADROOM_RETURN_IF_ERROR(budget_.Step());
    loop->loop_index = static_cast<int64_t>(i);
    Frame scope{&frame, {}};
    if (loop_name_ >= 0) {
      scope.variables.emplace_back(loop_name_, loop_value);
    }
    HEADROOM_RETURN_IF_ERROR(AssignAll(stmt, list->items[i], scope));
    HEADROOM_ASSIGN_OR_RETURN(const Flow flow, RunBlock(stmt.blocks[0], scope, sink));
    if (flow == Flow::kBreak) {
      break;
    }
  }
  return Flow::kNext;
}

Status Interpreter::Assign(const Target& target, Value value, Frame& frame) {
  if (target.attribute.empty()) {
    SetVariable(frame, target.name, std::move(value));
    return OkStatus();
  }
  HEADROOM_ASSIGN_OR_RETURN(const Value object, Lookup(target.name, frame));
  HEADROOM_RETURN_IF_ERROR(RequireDefined(object));
  const auto* space = std::get_if<std::shared_ptr<NamespaceObject>>(&object.data());
  if (space == nullptr || (*space)->loop_items != nullptr) {
    return InvalidArgument("cannot assign attribute on non-namespace object");
  }
  HEADROOM_RETURN_IF_ERROR(CheckStorable(value));
  auto& attributes = (*space)->attributes;
  HEADROOM_RETURN_IF_ERROR(
      budget_.Step(static_cast<int64_t>(attributes.size() / kVariablesPerStep)));
  for (auto& [name, current] : attributes) {
    if (name == target.attribute) {
      current = std::move(value);
      return OkStatus();
    }
  }
  attributes.emplace_back(target.attribute, std::move(value));
  return OkStatus();
}

Status Interpreter::AssignAll(const Stmt& stmt, Value value, Frame& frame) {
  if (!stmt.unpacks) {
    return Assign(stmt.targets[0], std::move(value), frame);
  }
  HEADROOM_RETURN_IF_ERROR(RequireDefined(value));
  HEADROOM_ASSIGN_OR_RETURN(const ValueList parts, Iterate(budget_, value));
  if (parts.size() != stmt.targets.size()) {
    return InvalidArgument("cannot unpack {} values into {} names", parts.size(),
                           stmt.targets.size());
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    HEADROOM_RETURN_IF_ERROR(Assign(stmt.targets[i], parts[i], frame));
  }
  return OkStatus();
}

Status Interpreter::RunSet(const Stmt& stmt, Frame& frame) {
  HEADROOM_ASSIGN_OR_RETURN(Value value, Evaluate(*stmt.exprs[0], frame));
  return AssignAll(stmt, std::move(value), frame);
}

StatusOr<Interpreter::Flow> Interpreter::RunWith(const Stmt& stmt, Frame& frame, Sink& sink) {
  Frame scope{&frame, {}};
  for (size_t i = 0; i < stmt.targets.size(); ++i) {
    HEADROOM_ASSIGN_OR_RETURN(Value value, Evaluate(*stmt.exprs[i], frame));
    HEADROOM_RETURN_IF_ERROR(Assign(stmt.targets[i], std::move(value), scope));
  }
  return RunBlock(stmt.blocks[0], scope, sink);
}

StatusOr<Value> Interpreter::RunCaptured(const Stmt& stmt, Frame& frame) {
  Frame scope{&frame, {}};
  Sink captured;
  HEADROOM_RETURN_IF_ERROR(RunBlock(stmt.blocks[0], scope, captured).status());
  HEADROOM_ASSIGN_OR_RETURN(Value value, NewText(budget_, std::move(captured.text)));
  for (const Suffix& filter : stmt.filters) {
    HEADROOM_ASSIGN_OR_RETURN(value, ApplySuffix(filter, value, frame));
  }
  return value;
}

// {% call macro(...) %}body{% endcall %}: the macro sees the body as `caller`.
Status Interpreter::RunCallBlock(const Stmt& stmt, Frame& frame, Sink& sink) {
  const Expr& call = *stmt.exprs[0];
  HEADROOM_ASSIGN_OR_RETURN(Value callee, Evaluate(*call.children[0], frame));
  for (size_t i = 0; i + 1 < call.suffixes.size(); ++i) {
    HEADROOM_ASSIGN_OR_RETURN(callee, ApplySuffix(call.suffixes[i], callee, frame));
  }
  HEADROOM_ASSIGN_OR_RETURN(Args args, EvaluateArgs(call.suffixes.back().args, frame));
  args.named.emplace_back("caller", MakeMacro(CallableKind::kCaller, "caller", stmt, frame));
  HEADROOM_ASSIGN_OR_RETURN(const Value value, Call(callee, args));
  return Write(value, sink);
}

}  // namespace headroom::models::jinja
