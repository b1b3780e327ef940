// Walks the syntax tree. One Interpreter renders once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "models/chat_template/ast.h"
#include "models/chat_template/budget.h"
#include "models/chat_template/call_args.h"
#include "models/chat_template/chat_template.h"

namespace headroom::models::jinja {

// A scope. Loops, macros, with, call, filter and set blocks open one; if does not. A frame lives
// on the stack of the statement that opened it.
struct Frame {
  Frame* parent = nullptr;                           // null: the template's own scope
  std::vector<std::pair<int32_t, Value>> variables;  // by name index; few
};

class Interpreter {
 public:
  Interpreter(const Program& program, const TemplateLimits& limits, const ChatInput& input,
              const Clock& clock);

  StatusOr<ProvenancedText> Run();

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  // Where statements write: the rendered text, or a text that becomes a value.
  struct Sink {
    ProvenancedText text;
    bool is_output = false;
  };

  // --- interpreter.cc: statements ---
  StatusOr<Flow> RunBlock(const Block& block, Frame& frame, Sink& sink);
  StatusOr<Flow> RunStmt(const Stmt& stmt, Frame& frame, Sink& sink);
  Status RunOutput(const Stmt& stmt, Frame& frame, Sink& sink);
  StatusOr<Flow> RunIf(const Stmt& stmt, Frame& frame, Sink& sink);
  StatusOr<Flow> RunFor(const Stmt& stmt, Frame& frame, Sink& sink);
  StatusOr<ValueList> LoopItems(const Stmt& stmt, Frame& frame);
  Status RunSet(const Stmt& stmt, Frame& frame);
  StatusOr<Flow> RunWith(const Stmt& stmt, Frame& frame, Sink& sink);
  Status RunCallBlock(const Stmt& stmt, Frame& frame, Sink& sink);
  // The text of a block in a scope of its own, through the statement's filters.
  StatusOr<Value> RunCaptured(const Stmt& stmt, Frame& frame);
  Status Write(const Value& value, Sink& sink);
  Status Assign(const Target& target, Value value, Frame& frame);
  Status AssignAll(const Stmt& stmt, Value value, Frame& frame);

  // --- interpreter_expr.cc: expressions ---
  StatusOr<Value> Evaluate(const Expr& expr, Frame& frame);
  StatusOr<Value> EvaluateKind(const Expr& expr, Frame& frame);
  StatusOr<Value> EvaluateSequence(const Expr& expr, Frame& frame);
  StatusOr<Value> EvaluateDict(const Expr& expr, Frame& frame);
  StatusOr<Value> EvaluateArithmetic(const Expr& expr, Frame& frame);
  StatusOr<Value> EvaluateCompare(const Expr& expr, Frame& frame);
  StatusOr<Value> EvaluateConcat(const Expr& expr, Frame& frame);
  StatusOr<Value> EvaluateLogic(const Expr& expr, Frame& frame);
  StatusOr<Value> EvaluateConditional(const Expr& expr, Frame& frame);
  StatusOr<Value> EvaluatePostfix(const Expr& expr, Frame& frame);
  StatusOr<Value> ApplySuffix(const Suffix& suffix, const Value& value, Frame& frame);
  StatusOr<Args> EvaluateArgs(const CallArgs& args, Frame& frame);
  StatusOr<Value> Lookup(int32_t name, Frame& frame);

  // --- interpreter_call.cc: macros and functions ---
  StatusOr<Value> Call(const Value& callee, const Args& args);
  StatusOr<Value> CallMacro(const CallableObject& macro, const Args& args);
  StatusOr<Value> CallGlobal(std::string_view name, const Args& args);
  StatusOr<Value> CallRange(const Args& args);
  StatusOr<Value> CallNamespace(const Args& args);
  StatusOr<Value> CallDict(const Args& args);
  StatusOr<Value> RaiseException(const Args& args);
  StatusOr<Value> CallStrftime(const Args& args);

  void AddGlobals(const ChatInput& input);
  void SetGlobal(std::string_view name, Value value);

  // Adds the place to an error, once; the text of raise_exception stays as it is.
  Status Located(Position position, const Status& status);

  const Program& program_;
  const ChatInput& input_;
  Budget budget_;
  std::vector<std::pair<std::string_view, int32_t>> name_index_;  // sorted
  std::vector<Value> globals_;                                    // by name index
  std::vector<bool> has_global_;                                  // by name index
  bool error_is_located_ = false;
  int32_t caller_name_ = -1;
  int32_t loop_name_ = -1;
};

}  // namespace headroom::models::jinja
