// Statements; see parser.h.
#include <algorithm>

#include "models/chat_template/parser.h"

namespace headroom::models::jinja {

StatusOr<Block> Parser::ParseBlock(const std::vector<std::string_view>& ends, Position opened,
                                   std::string& end) {
  const Level level(*this);
  HEADROOM_RETURN_IF_ERROR(CheckDepth());
  Block block;
  while (true) {
    const Token& token = Current();
    if (token.kind == TokenKind::kEnd) {
      if (ends.empty()) {
        return block;
      }
      return SyntaxError(
          opened, fmt::format("this block has no end, wanted '{}'", fmt::join(ends, "' or '")));
    }
    if (token.kind == TokenKind::kText) {
      auto stmt = std::make_unique<Stmt>();
      stmt->kind = StmtKind::kText;
      stmt->position = token.position;
      stmt->text = Value::TemplateString(token.text);
      block.push_back(std::move(stmt));
      ++next_;
      continue;
    }
    if (token.kind == TokenKind::kOutputBegin) {
      HEADROOM_ASSIGN_OR_RETURN(auto stmt, ParseOutput());
      block.push_back(std::move(stmt));
      continue;
    }
    ++next_;  // {%
    if (Current().kind == TokenKind::kName && std::ranges::count(ends, Current().text) > 0) {
      end = Current().text;
      ++next_;
      return block;
    }
    HEADROOM_ASSIGN_OR_RETURN(auto stmt, ParseTag());
    block.push_back(std::move(stmt));
  }
}

Status Parser::ParseBody(Stmt& stmt, std::string_view end) {
  std::string found;
  HEADROOM_ASSIGN_OR_RETURN(Block body, ParseBlock({end}, stmt.position, found));
  stmt.blocks.push_back(std::move(body));
  return ExpectBlockEnd(end);
}

StatusOr<std::unique_ptr<Stmt>> Parser::ParseOutput() {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = StmtKind::kOutput;
  stmt->position = Current().position;
  ++next_;
  HEADROOM_ASSIGN_OR_RETURN(ExprPtr expr, ParseTuple(/*conditional=*/true, false));
  stmt->exprs.push_back(std::move(expr));
  if (Current().kind != TokenKind::kOutputEnd) {
    return Unexpected("'}}'");
  }
  ++next_;
  return stmt;
}

StatusOr<std::unique_ptr<Stmt>> Parser::ParseTag() {
  auto stmt = std::make_unique<Stmt>();
  stmt->position = Current().position;
  HEADROOM_ASSIGN_OR_RETURN(const std::string tag, ExpectAnyName("the name of a tag"));
  Status status;
  if (tag == "if") {
    status = ParseIf(*stmt);
  } else if (tag == "for") {
    status = ParseFor(*stmt);
  } else if (tag == "set") {
    status = ParseSet(*stmt);
  } else if (tag == "macro") {
    status = ParseMacro(*stmt);
  } else if (tag == "call") {
    status = ParseCall(*stmt);
  } else if (tag == "filter") {
    status = ParseFilterBlock(*stmt);
  } else if (tag == "with") {
    status = ParseWith(*stmt);
  } else if (tag == "generation") {
    status = ParseGeneration(*stmt);
  } else if (tag == "break") {
    status = ParseLoopControl(*stmt, StmtKind::kBreak);
  } else if (tag == "continue") {
    status = ParseLoopControl(*stmt, StmtKind::kContinue);
  } else {
    status = SyntaxError(stmt->position,
                         fmt::format("the tag '{}' is not supported here", tag.substr(0, 60)));
  }
  if (!status.ok()) {
    return status;
  }
  return stmt;
}

Status Parser::ParseIf(Stmt& stmt) {
  stmt.kind = StmtKind::kIf;
  std::string end = "elif";
  while (end == "elif") {
    HEADROOM_ASSIGN_OR_RETURN(ExprPtr condition, ParseTuple(/*conditional=*/false, false));
    stmt.exprs.push_back(std::move(condition));
    HEADROOM_RETURN_IF_ERROR(ExpectBlockEnd("if"));
    HEADROOM_ASSIGN_OR_RETURN(Block block,
                              ParseBlock({"elif", "else", "endif"}, stmt.position, end));
    stmt.blocks.push_back(std::move(block));
  }
  if (end == "else") {
    HEADROOM_RETURN_IF_ERROR(ExpectBlockEnd("else"));
    HEADROOM_ASSIGN_OR_RETURN(Block block, ParseBlock({"endif"}, stmt.position, end));
    stmt.blocks.push_back(std::move(block));
  }
  return ExpectBlockEnd("endif");
}

Status Parser::ParseFor(Stmt& stmt) {
  stmt.kind = StmtKind::kFor;
  HEADROOM_RETURN_IF_ERROR(ParseTargets(stmt, /*attributes=*/false));
  HEADROOM_RETURN_IF_ERROR(ExpectName("in"));
  HEADROOM_ASSIGN_OR_RETURN(ExprPtr items, ParseTuple(/*conditional=*/false, false));
  stmt.exprs.push_back(std::move(items));
  stmt.exprs.push_back(nullptr);
  if (SkipName("if")) {
    HEADROOM_ASSIGN_OR_RETURN(stmt.exprs[1], ParseExpression());
  }
  if (IsName("recursive")) {
    return SyntaxError(Current().position, "recursive loops are not supported");
  }
  HEADROOM_RETURN_IF_ERROR(ExpectBlockEnd("for"));
  std::string end;
  ++loop_depth_;
  StatusOr<Block> body = ParseBlock({"else", "endfor"}, stmt.position, end);
  --loop_depth_;
  if (!body.ok()) {
    return body.status();
  }
  stmt.blocks.push_back(std::move(body).value());
  if (end == "else") {
    HEADROOM_RETURN_IF_ERROR(ExpectBlockEnd("else"));
    HEADROOM_ASSIGN_OR_RETURN(Block otherwise, ParseBlock({"endfor"}, stmt.position, end));
    stmt.blocks.push_back(std::move(otherwise));
  }
  return ExpectBlockEnd("endfor");
}

StatusOr<Target> Parser::ParseTarget(bool attribute) {
  const Position position = Current().position;
  HEADROOM_ASSIGN_OR_RETURN(const std::string name, ExpectAnyName("a name to assign to"));
  static constexpr std::string_view kConstants[] = {"true", "false", "none",
                                                    "True", "False", "None"};
  if (std::ranges::count(kConstants, name) > 0) {
    return SyntaxError(position, fmt::format("'{}' cannot be assigned to", name));
  }
  Target target;
  target.name = Intern(name);
  if (attribute && SkipOp(".")) {
    HEADROOM_ASSIGN_OR_RETURN(target.attribute, ExpectAnyName("the name of an attribute"));
  }
  return target;
}

Status Parser::ParseTargets(Stmt& stmt, bool attributes) {
  const bool bracketed = SkipOp("(");
  stmt.unpacks = bracketed;
  while (true) {
    HEADROOM_ASSIGN_OR_RETURN(Target target, ParseTarget(attributes));
    stmt.targets.push_back(std::move(target));
    if (!SkipOp(",")) {
      break;
    }
    stmt.unpacks = true;
    if (IsName("in") || IsOp("=") || IsOp(")")) {
      break;
    }
  }
  if (bracketed) {
    HEADROOM_RETURN_IF_ERROR(ExpectOp(")"));
    stmt.unpacks = stmt.targets.size() > 1;
  }
  return OkStatus();
}

Status Parser::ParseSet(Stmt& stmt) {
  stmt.kind = StmtKind::kSet;
  HEADROOM_RETURN_IF_ERROR(ParseTargets(stmt, /*attributes=*/true));
  if (SkipOp("=")) {
    HEADROOM_ASSIGN_OR_RETURN(ExprPtr value, ParseTuple(/*conditional=*/true, false));
    stmt.exprs.push_back(std::move(value));
    return ExpectBlockEnd("set");
  }
  if (stmt.unpacks) {
    return Unexpected("'='");
  }
  stmt.kind = StmtKind::kSetBlock;
  while (SkipOp("|")) {
    HEADROOM_ASSIGN_OR_RETURN(Suffix filter, ParseFilter());
    stmt.filters.push_back(std::move(filter));
  }
  HEADROOM_RETURN_IF_ERROR(ExpectBlockEnd("set"));
  return ParseBody(stmt, "endset");
}

Status Parser::ParseParameters(Stmt& stmt) {
  HEADROOM_RETURN_IF_ERROR(ExpectOp("("));
  while (!IsOp(")")) {
    HEADROOM_ASSIGN_OR_RETURN(const Target target, ParseTarget(/*attribute=*/false));
    Parameter parameter;
    parameter.name = target.name;
    if (SkipOp("=")) {
      HEADROOM_ASSIGN_OR_RETURN(parameter.default_value, ParseExpression());
    } else if (!stmt.parameters.empty() && stmt.parameters.back().default_value != nullptr) {
      return Unexpected("'=': parameters with a default come last");
    }
    stmt.parameters.push_back(std::move(parameter));
    if (!IsOp(")")) {
      HEADROOM_RETURN_IF_ERROR(ExpectOp(","));
    }
  }
  return ExpectOp(")");
}

Status Parser::ParseMacro(Stmt& stmt) {
  stmt.kind = StmtKind::kMacro;
  HEADROOM_ASSIGN_OR_RETURN(const Target target, ParseTarget(/*attribute=*/false));
  stmt.name = target.name;
  HEADROOM_RETURN_IF_ERROR(ParseParameters(stmt));
  HEADROOM_RETURN_IF_ERROR(ExpectBlockEnd("macro"));
  const int32_t outer_loops = std::exchange(loop_depth_, 0);
  const Status status = ParseBody(stmt, "endmacro");
  loop_depth_ = outer_loops;
  return status;
}

Status Parser::ParseCall(Stmt& stmt) {
  stmt.kind = StmtKind::kCallBlock;
  stmt.name = Intern("caller");
  if (IsOp("(")) {
    HEADROOM_RETURN_IF_ERROR(ParseParameters(stmt));
  }
  const Position position = Current().position;
  HEADROOM_ASSIGN_OR_RETURN(ExprPtr call, ParseExpression());
  if (call->kind != ExprKind::kPostfix || call->suffixes.back().kind != SuffixKind::kCall) {
    return SyntaxError(position, "'call' wants the call of a macro");
  }
  stmt.exprs.push_back(std::move(call));
  HEADROOM_RETURN_IF_ERROR(ExpectBlockEnd("call"));
  const int32_t outer_loops = std::exchange(loop_depth_, 0);
  const Status status = ParseBody(stmt, "endcall");
  loop_depth_ = outer_loops;
  return status;
}

Status Parser::ParseFilterBlock(Stmt& stmt) {
  stmt.kind = StmtKind::kFilterBlock;
  do {
    HEADROOM_ASSIGN_OR_RETURN(Suffix filter, ParseFilter());
    stmt.filters.push_back(std::move(filter));
  } while (SkipOp("|"));
  HEADROOM_RETURN_IF_ERROR(ExpectBlockEnd("filter"));
  return ParseBody(stmt, "endfilter");
}

Status Parser::ParseWith(Stmt& stmt) {
  stmt.kind = StmtKind::kWith;
  while (Current().kind != TokenKind::kBlockEnd) {
    HEADROOM_ASSIGN_OR_RETURN(Target target, ParseTarget(/*attribute=*/false));
    stmt.targets.push_back(std::move(target));
    HEADROOM_RETURN_IF_ERROR(ExpectOp("="));
    HEADROOM_ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
    stmt.exprs.push_back(std::move(value));
    if (!SkipOp(",")) {
      break;
    }
  }
  HEADROOM_RETURN_IF_ERROR(ExpectBlockEnd("with"));
  return ParseBody(stmt, "endwith");
}

// {% generation %} marks assistant text for training; rendering sees a plain scope.
Status Parser::ParseGeneration(Stmt& stmt) {
  stmt.kind = StmtKind::kWith;
  HEADROOM_RETURN_IF_ERROR(ExpectBlockEnd("generation"));
  return ParseBody(stmt, "endgeneration");
}

Status Parser::ParseLoopControl(Stmt& stmt, StmtKind kind) {
  stmt.kind = kind;
  const std::string_view name = kind == StmtKind::kBreak ? "break" : "continue";
  if (loop_depth_ == 0) {
    return SyntaxError(stmt.position, fmt::format("'{}' outside a loop", name));
  }
  return ExpectBlockEnd(name);
}

}  // namespace headroom::models::jinja
