// Expressions; see interpreter.h.
#include "models/chat_template/access.h"
#include "models/chat_template/filters.h"
#include "models/chat_template/interpreter.h"
#include "models/chat_template/operators.h"
#include "models/chat_template/printing.h"
#include "models/chat_template/provenance.h"
#include "models/chat_template/value_tests.h"

namespace headroom::models::jinja {

StatusOr<Value> Interpreter::Lookup(int32_t name, Frame& frame) {
  for (const Frame* scope = &frame; scope != nullptr; scope = scope->parent) {
    HEADROOM_RETURN_IF_ERROR(budget_.Step(static_cast<int64_t>(scope->variables.size() / 32)));
    for (const auto& [known, value] : scope->variables) {
      if (known == name) {
        return value;
      }
    }
  }
  const auto index = static_cast<size_t>(name);
  if (has_global_[index]) {
    return globals_[index];
  }
  return MakeUndefined(fmt::format("'{}' is undefined", program_.names[index]));
}

StatusOr<Value> Interpreter::Evaluate(const Expr& expr, Frame& frame) {
  const DepthGuard guard(budget_);
  if (!guard.status().ok()) {
    return Located(expr.position, guard.status());
  }
  if (const Status status = budget_.Step(); !status.ok()) {
    return Located(expr.position, status);
  }
  StatusOr<Value> value = EvaluateKind(expr, frame);
  if (!value.ok()) {
    return Located(expr.position, value.status());
  }
  return value;
}

StatusOr<Value> Interpreter::EvaluateKind(const Expr& expr, Frame& frame) {
  switch (expr.kind) {
    case ExprKind::kConstant:
      return expr.value;
    case ExprKind::kName:
      return Lookup(expr.name, frame);
    case ExprKind::kList:
    case ExprKind::kTuple:
      return EvaluateSequence(expr, frame);
    case ExprKind::kDict:
      return EvaluateDict(expr, frame);
    case ExprKind::kArithmetic:
      return EvaluateArithmetic(expr, frame);
    case ExprKind::kCompare:
      return EvaluateCompare(expr, frame);
    case ExprKind::kConcat:
      return EvaluateConcat(expr, frame);
    case ExprKind::kAnd:
    case ExprKind::kOr:
      return EvaluateLogic(expr, frame);
    case ExprKind::kNot: {
      HEADROOM_ASSIGN_OR_RETURN(const Value value, Evaluate(*expr.children[0], frame));
      return Value::Bool(IsTrue(value) == (expr.ops.size() % 2 == 0));
    }
    case ExprKind::kSign: {
      HEADROOM_ASSIGN_OR_RETURN(Value value, Evaluate(*expr.children[0], frame));
      HEADROOM_RETURN_IF_ERROR(budget_.Step(static_cast<int64_t>(expr.ops.size())));
      for (auto op = expr.ops.rbegin(); op != expr.ops.rend(); ++op) {
        HEADROOM_ASSIGN_OR_RETURN(Value negated, Negate(value));  // also checks the type
        if (*op == Op::kSubtract) {
          value = std::move(negated);
        }
      }
      return value;
    }
    case ExprKind::kConditional:
      return EvaluateConditional(expr, frame);
    case ExprKind::kPostfix:
      return EvaluatePostfix(expr, frame);
  }
  return Internal("an expression of unknown kind");
}

StatusOr<Value> Interpreter::EvaluateSequence(const Expr& expr, Frame& frame) {
  ValueList items;
  items.reserve(expr.children.size());
  for (const ExprPtr& child : expr.children) {
    HEADROOM_ASSIGN_OR_RETURN(Value item, Evaluate(*child, frame));
    HEADROOM_RETURN_IF_ERROR(CheckStorable(item));
    items.push_back(std::move(item));
  }
  return expr.kind == ExprKind::kTuple ? NewTuple(budget_, std::move(items))
                                       : NewList(budget_, std::move(items));
}

StatusOr<Value> Interpreter::EvaluateDict(const Expr& expr, Frame& frame) {
  ValueDict entries;
  bool template_keys = true;
  for (size_t i = 0; i < expr.children.size(); i += 2) {
    HEADROOM_ASSIGN_OR_RETURN(const Value key, Evaluate(*expr.children[i], frame));
    HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText* text, TextArg("the key of a dict", key));
    HEADROOM_ASSIGN_OR_RETURN(Value value, Evaluate(*expr.children[i + 1], frame));
    HEADROOM_RETURN_IF_ERROR(CheckStorable(value));
    template_keys = template_keys && text->message_ranges.empty();
    entries.emplace_back(text->text, std::move(value));
  }
  return NewDict(budget_, std::move(entries), template_keys);
}

StatusOr<Value> Interpreter::EvaluateArithmetic(const Expr& expr, Frame& frame) {
  HEADROOM_ASSIGN_OR_RETURN(Value value, Evaluate(*expr.children[0], frame));
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    HEADROOM_ASSIGN_OR_RETURN(const Value operand, Evaluate(*expr.children[i + 1], frame));
    HEADROOM_ASSIGN_OR_RETURN(value, Arithmetic(budget_, expr.ops[i], std::move(value), operand));
  }
  return value;
}

StatusOr<Value> Interpreter::EvaluateCompare(const Expr& expr, Frame& frame) {
  HEADROOM_ASSIGN_OR_RETURN(Value left, Evaluate(*expr.children[0], frame));
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    HEADROOM_ASSIGN_OR_RETURN(Value right, Evaluate(*expr.children[i + 1], frame));
    HEADROOM_ASSIGN_OR_RETURN(const bool holds, Compare(budget_, expr.ops[i], left, right));
    if (!holds) {
      return Value::Bool(false);
    }
    left = std::move(right);
  }
  return Value::Bool(true);
}

StatusOr<Value> Interpreter::EvaluateConcat(const Expr& expr, Frame& frame) {
  ProvenancedText out;
  for (const ExprPtr& child : expr.children) {
    HEADROOM_ASSIGN_OR_RETURN(const Value value, Evaluate(*child, frame));
    HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText text, ToText(budget_, value));
    AppendText(out, text);
  }
  return NewText(budget_, std::move(out));
}

// `and` and `or` give the operand that decided, as in Python.
StatusOr<Value> Interpreter::EvaluateLogic(const Expr& expr, Frame& frame) {
  const bool stops_at = expr.kind == ExprKind::kOr;
  for (size_t i = 0;; ++i) {
    HEADROOM_ASSIGN_OR_RETURN(Value value, Evaluate(*expr.children[i], frame));
    if (i + 1 == expr.children.size() || IsTrue(value) == stops_at) {
      return value;
    }
  }
}

StatusOr<Value> Interpreter::EvaluateConditional(const Expr& expr, Frame& frame) {
  size_t i = 0;
  for (; i + 1 < expr.children.size(); i += 2) {
    HEADROOM_ASSIGN_OR_RETURN(const Value condition, Evaluate(*expr.children[i + 1], frame));
    if (IsTrue(condition)) {
      return Evaluate(*expr.children[i], frame);
    }
  }
  if (expr.children[i] == nullptr) {
    return MakeUndefined(fmt::format(
        "the inline if-expression in line {} evaluated to false and no else section was defined",
        expr.position.line));
  }
  return Evaluate(*expr.children[i], frame);
}

StatusOr<Value> Interpreter::EvaluatePostfix(const Expr& expr, Frame& frame) {
  HEADROOM_ASSIGN_OR_RETURN(Value value, Evaluate(*expr.children[0], frame));
  for (const Suffix& suffix : expr.suffixes) {
    const Status step = budget_.Step();
    StatusOr<Value> next = step.ok() ? ApplySuffix(suffix, value, frame) : StatusOr<Value>(step);
    if (!next.ok()) {
      return Located(suffix.position, next.status());
    }
    value = std::move(next).value();
  }
  return value;
}

StatusOr<Value> Interpreter::ApplySuffix(const Suffix& suffix, const Value& value, Frame& frame) {
  switch (suffix.kind) {
    case SuffixKind::kAttribute:
      return GetAttribute(value, suffix.text);
    case SuffixKind::kSubscript: {
      HEADROOM_ASSIGN_OR_RETURN(const Value index, Evaluate(*suffix.children[0], frame));
      return GetItem(budget_, value, index);
    }
    case SuffixKind::kSlice: {
      Value parts[3] = {Value::MakeNone(), Value::MakeNone(), Value::MakeNone()};
      for (size_t i = 0; i < 3; ++i) {
        if (suffix.children[i] != nullptr) {
          HEADROOM_ASSIGN_OR_RETURN(parts[i], Evaluate(*suffix.children[i], frame));
        }
      }
      return GetSlice(budget_, value, parts[0], parts[1], parts[2]);
    }
    case SuffixKind::kCall: {
      HEADROOM_ASSIGN_OR_RETURN(const Args args, EvaluateArgs(suffix.args, frame));
      return Call(value, args);
    }
    case SuffixKind::kFilter: {
      HEADROOM_ASSIGN_OR_RETURN(const Args args, EvaluateArgs(suffix.args, frame));
      return suffix.filter->function(budget_, suffix.filter->name, value, args);
    }
    case SuffixKind::kTest: {
      HEADROOM_ASSIGN_OR_RETURN(const Args args, EvaluateArgs(suffix.args, frame));
      HEADROOM_ASSIGN_OR_RETURN(const bool result,
                                suffix.test->function(budget_, suffix.test->name, value, args));
      return Value::Bool(result != suffix.negated);
    }
  }
  return Internal("a suffix of unknown kind");
}

StatusOr<Args> Interpreter::EvaluateArgs(const CallArgs& args, Frame& frame) {
  Args evaluated;
  for (const ExprPtr& expr : args.positional) {
    HEADROOM_ASSIGN_OR_RETURN(Value value, Evaluate(*expr, frame));
    evaluated.positional.push_back(std::move(value));
  }
  for (const auto& [name, expr] : args.named) {
    HEADROOM_ASSIGN_OR_RETURN(Value value, Evaluate(*expr, frame));
    evaluated.named.emplace_back(name, std::move(value));
  }
  return evaluated;
}

}  // namespace headroom::models::jinja
