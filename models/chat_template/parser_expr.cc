// Expressions, by binding strength; see parser.h.
#include <optional>

#include "models/chat_template/parser.h"

namespace headroom::models::jinja {

namespace {

ExprPtr MakeExpr(ExprKind kind, Position position) {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->position = position;
  return expr;
}

// An operand becomes the first child of a chain of `kind`, unless it is that chain already.
void StartChain(ExprPtr& expr, ExprKind kind) {
  auto chain = MakeExpr(kind, expr->position);
  chain->children.push_back(std::move(expr));
  expr = std::move(chain);
}

std::optional<Op> ComparisonOf(const Token& token) {
  if (token.kind != TokenKind::kOperator) {
    return std::nullopt;
  }
  if (token.text == "==")
    return Op::kEqual;
  if (token.text == "!=")
    return Op::kNotEqual;
  if (token.text == "<")
    return Op::kLess;
  if (token.text == "<=")
    return Op::kLessEqual;
  if (token.text == ">")
    return Op::kGreater;
  if (token.text == ">=")
    return Op::kGreaterEqual;
  return std::nullopt;
}

std::optional<Op> ProductOf(const Token& token) {
  if (token.kind != TokenKind::kOperator) {
    return std::nullopt;
  }
  if (token.text == "*")
    return Op::kMultiply;
  if (token.text == "/")
    return Op::kDivide;
  if (token.text == "//")
    return Op::kFloorDivide;
  if (token.text == "%")
    return Op::kModulo;
  return std::nullopt;
}

}  // namespace

StatusOr<ExprPtr> Parser::ParseConditional() {
  const Level level(*this);
  HEADROOM_RETURN_IF_ERROR(CheckDepth());
  HEADROOM_ASSIGN_OR_RETURN(ExprPtr value, ParseOr());
  if (!IsName("if")) {
    return value;
  }
  // `a if x else b if y else c` is right-associative: a flat list of alternatives.
  auto conditional = MakeExpr(ExprKind::kConditional, Current().position);
  conditional->children.push_back(std::move(value));
  while (SkipName("if")) {
    HEADROOM_ASSIGN_OR_RETURN(ExprPtr condition, ParseOr());
    conditional->children.push_back(std::move(condition));
    if (!SkipName("else")) {
      conditional->children.push_back(nullptr);
      if (IsName("if")) {
        return Unexpected("'else'");
      }
      return conditional;
    }
    HEADROOM_ASSIGN_OR_RETURN(ExprPtr next, ParseOr());
    conditional->children.push_back(std::move(next));
  }
  return conditional;
}

StatusOr<ExprPtr> Parser::ParseOr() {
  HEADROOM_ASSIGN_OR_RETURN(ExprPtr expr, ParseAnd());
  if (!IsName("or")) {
    return expr;
  }
  StartChain(expr, ExprKind::kOr);
  while (SkipName("or")) {
    HEADROOM_ASSIGN_OR_RETURN(ExprPtr next, ParseAnd());
    expr->children.push_back(std::move(next));
  }
  return expr;
}

StatusOr<ExprPtr> Parser::ParseAnd() {
  HEADROOM_ASSIGN_OR_RETURN(ExprPtr expr, ParseNot());
  if (!IsName("and")) {
    return expr;
  }
  StartChain(expr, ExprKind::kAnd);
  while (SkipName("and")) {
    HEADROOM_ASSIGN_OR_RETURN(ExprPtr next, ParseNot());
    expr->children.push_back(std::move(next));
  }
  return expr;
}

StatusOr<ExprPtr> Parser::ParseNot() {
  const Position position = Current().position;
  size_t count = 0;
  while (SkipName("not")) {
    ++count;
  }
  HEADROOM_ASSIGN_OR_RETURN(ExprPtr expr, ParseCompare());
  if (count == 0) {
    return expr;
  }
  StartChain(expr, ExprKind::kNot);
  expr->position = position;
  expr->ops.assign(count, Op::kNot);
  return expr;
}

StatusOr<ExprPtr> Parser::ParseCompare() {
  HEADROOM_ASSIGN_OR_RETURN(ExprPtr expr, ParseSum());
  bool chained = false;
  while (true) {
    std::optional<Op> op = ComparisonOf(Current());
    if (IsName("in")) {
      op = Op::kIn;
    } else if (IsName("not") && Following().Is(TokenKind::kName, "in")) {
      op = Op::kNotIn;
      ++next_;
    }
    if (!op) {
      return expr;
    }
    if (!chained) {
      StartChain(expr, ExprKind::kCompare);
      chained = true;
    }
    ++next_;
    HEADROOM_ASSIGN_OR_RETURN(ExprPtr next, ParseSum());
    expr->ops.push_back(*op);
    expr->children.push_back(std::move(next));
  }
}

StatusOr<ExprPtr> Parser::ParseSum() {
  HEADROOM_ASSIGN_OR_RETURN(ExprPtr expr, ParseConcat());
  if (!IsOp("+") && !IsOp("-")) {
    return expr;
  }
  StartChain(expr, ExprKind::kArithmetic);
  while (IsOp("+") || IsOp("-")) {
    expr->ops.push_back(IsOp("+") ? Op::kAdd : Op::kSubtract);
    ++next_;
    HEADROOM_ASSIGN_OR_RETURN(ExprPtr next, ParseConcat());
    expr->children.push_back(std::move(next));
  }
  return expr;
}

StatusOr<ExprPtr> Parser::ParseConcat() {
  HEADROOM_ASSIGN_OR_RETURN(ExprPtr expr, ParseProduct());
  if (!IsOp("~")) {
    return expr;
  }
  StartChain(expr, ExprKind::kConcat);
  while (SkipOp("~")) {
    HEADROOM_ASSIGN_OR_RETURN(ExprPtr next, ParseProduct());
    expr->children.push_back(std::move(next));
  }
  return expr;
}

StatusOr<ExprPtr> Parser::ParseProduct() {
  HEADROOM_ASSIGN_OR_RETURN(ExprPtr expr, ParsePower());
  if (!ProductOf(Current())) {
    return expr;
  }
  StartChain(expr, ExprKind::kArithmetic);
  while (const std::optional<Op> op = ProductOf(Current())) {
    ++next_;
    HEADROOM_ASSIGN_OR_RETURN(ExprPtr next, ParsePower());
    expr->ops.push_back(*op);
    expr->children.push_back(std::move(next));
  }
  return expr;
}

StatusOr<ExprPtr> Parser::ParsePower() {
  HEADROOM_ASSIGN_OR_RETURN(ExprPtr expr, ParseUnary());
  if (!IsOp("**")) {
    return expr;
  }
  StartChain(expr, ExprKind::kArithmetic);  // left-associative in Jinja, unlike in Python
  while (SkipOp("**")) {
    HEADROOM_ASSIGN_OR_RETURN(ExprPtr next, ParseUnary());
    expr->ops.push_back(Op::kPower);
    expr->children.push_back(std::move(next));
  }
  return expr;
}

StatusOr<ExprPtr> Parser::ParseUnary() {
  const Position position = Current().position;
  std::vector<Op> signs;
  while (IsOp("-") || IsOp("+")) {
    signs.push_back(IsOp("-") ? Op::kSubtract : Op::kAdd);
    ++next_;
  }
  HEADROOM_ASSIGN_OR_RETURN(ExprPtr expr, ParsePrimary());
  if (signs.empty()) {
    HEADROOM_RETURN_IF_ERROR(ParseSuffixes(expr, /*filters=*/true));
    return expr;
  }
  // A sign binds tighter than a filter: -1|abs filters -1.
  HEADROOM_RETURN_IF_ERROR(ParseSuffixes(expr, /*filters=*/false));
  StartChain(expr, ExprKind::kSign);
  expr->position = position;
  expr->ops = std::move(signs);
  HEADROOM_RETURN_IF_ERROR(ParseSuffixes(expr, /*filters=*/true));
  return expr;
}

bool Parser::AtTupleEnd() const {
  const TokenKind kind = Current().kind;
  return kind == TokenKind::kOutputEnd || kind == TokenKind::kBlockEnd || IsOp(")") ||
         IsName("in") || IsName("recursive");
}

StatusOr<ExprPtr> Parser::ParseTuple(bool conditional, bool in_parentheses) {
  const Position position = Current().position;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (!AtTupleEnd()) {
    StatusOr<ExprPtr> item = conditional ? ParseExpression() : ParseOr();
    if (!item.ok()) {
      return item.status();
    }
    items.push_back(std::move(item).value());
    if (!SkipOp(",")) {
      break;
    }
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) {
    return std::move(items[0]);
  }
  if (items.empty() && !in_parentheses) {
    return Unexpected("an expression");
  }
  auto tuple = MakeExpr(ExprKind::kTuple, position);
  tuple->children = std::move(items);
  return tuple;
}

}  // namespace headroom::models::jinja
