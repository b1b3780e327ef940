// Literals, brackets and what may follow a value; see parser.h.
#include "models/chat_template/filters.h"
#include "models/chat_template/parser.h"
#include "models/chat_template/value_objects.h"
#include "models/chat_template/value_tests.h"

namespace headroom::models::jinja {

namespace {

ExprPtr MakeConstant(Position position, Value value) {
  auto expr = std::make_unique<Expr>();
  expr->kind = ExprKind::kConstant;
  expr->position = position;
  expr->value = std::move(value);
  return expr;
}

}  // namespace

StatusOr<ExprPtr> Parser::ParsePrimary() {
  const Token& token = Current();
  const Position position = token.position;
  switch (token.kind) {
    case TokenKind::kName: {
      ++next_;
      if (token.text == "true" || token.text == "True") {
        return MakeConstant(position, Value::Bool(true));
      }
      if (token.text == "false" || token.text == "False") {
        return MakeConstant(position, Value::Bool(false));
      }
      if (token.text == "none" || token.text == "None") {
        return MakeConstant(position, Value::MakeNone());
      }
      auto expr = std::make_unique<Expr>();
      expr->kind = ExprKind::kName;
      expr->position = position;
      expr->name = Intern(token.text);
      return expr;
    }
    case TokenKind::kString: {
      std::string text;
      while (Current().kind == TokenKind::kString) {  // neighbours are one string
        text += Current().text;
        ++next_;
      }
      return MakeConstant(position, Value::TemplateString(std::move(text)));
    }
    case TokenKind::kInteger:
      ++next_;
      return MakeConstant(position, Value::Int(token.integer));
    case TokenKind::kFloat:
      ++next_;
      return MakeConstant(position, Value::Double(token.number));
    default:
      break;
  }
  if (IsOp("(")) {
    return ParseParentheses();
  }
  if (IsOp("[")) {
    return ParseListLiteral();
  }
  if (IsOp("{")) {
    return ParseDictLiteral();
  }
  return Unexpected("an expression");
}

StatusOr<ExprPtr> Parser::ParseParentheses() {
  HEADROOM_RETURN_IF_ERROR(ExpectOp("("));
  HEADROOM_ASSIGN_OR_RETURN(ExprPtr expr, ParseTuple(/*conditional=*/true, true));
  HEADROOM_RETURN_IF_ERROR(ExpectOp(")"));
  return expr;
}

StatusOr<ExprPtr> Parser::ParseListLiteral() {
  auto list = std::make_unique<Expr>();
  list->kind = ExprKind::kList;
  list->position = Current().position;
  HEADROOM_RETURN_IF_ERROR(ExpectOp("["));
  while (!IsOp("]")) {
    HEADROOM_ASSIGN_OR_RETURN(ExprPtr item, ParseExpression());
    list->children.push_back(std::move(item));
    if (!IsOp("]")) {
      HEADROOM_RETURN_IF_ERROR(ExpectOp(","));
    }
  }
  ++next_;
  return list;
}

StatusOr<ExprPtr> Parser::ParseDictLiteral() {
  auto dict = std::make_unique<Expr>();
  dict->kind = ExprKind::kDict;
  dict->position = Current().position;
  HEADROOM_RETURN_IF_ERROR(ExpectOp("{"));
  while (!IsOp("}")) {
    HEADROOM_ASSIGN_OR_RETURN(ExprPtr key, ParseExpression());
    HEADROOM_RETURN_IF_ERROR(ExpectOp(":"));
    HEADROOM_ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
    dict->children.push_back(std::move(key));
    dict->children.push_back(std::move(value));
    if (!IsOp("}")) {
      HEADROOM_RETURN_IF_ERROR(ExpectOp(","));
    }
  }
  ++next_;
  return dict;
}

Status Parser::ParseSuffixes(ExprPtr& expr, bool filters) {
  ExprPtr postfix;  // made when the first suffix comes
  while (true) {
    StatusOr<Suffix> suffix = Suffix{};
    const Position position = Current().position;
    if (IsOp(".")) {
      suffix = ParseDot();
    } else if (IsOp("[")) {
      suffix = ParseBracket();
    } else if (IsOp("(")) {
      StatusOr<CallArgs> args = ParseCallArgs();
      if (!args.ok()) {
        return args.status();
      }
      suffix->kind = SuffixKind::kCall;
      suffix->args = std::move(args).value();
    } else if (filters && IsOp("|")) {
      ++next_;
      suffix = ParseFilter();
    } else if (filters && IsName("is")) {
      suffix = ParseTest();
    } else {
      break;
    }
    if (!suffix.ok()) {
      return suffix.status();
    }
    suffix->position = position;
    if (postfix == nullptr) {
      postfix = std::make_unique<Expr>();
      postfix->kind = ExprKind::kPostfix;
      postfix->position = expr->position;
    }
    postfix->suffixes.push_back(std::move(suffix).value());
  }
  if (postfix != nullptr) {
    postfix->children.push_back(std::move(expr));
    expr = std::move(postfix);
  }
  return OkStatus();
}

StatusOr<Suffix> Parser::ParseDot() {
  ++next_;
  Suffix suffix;
  if (Current().kind == TokenKind::kInteger) {  // items.0 is items[0]
    suffix.kind = SuffixKind::kSubscript;
    suffix.children.push_back(MakeConstant(Current().position, Value::Int(Current().integer)));
    ++next_;
    return suffix;
  }
  HEADROOM_ASSIGN_OR_RETURN(suffix.text, ExpectAnyName("the name of an attribute"));
  return suffix;
}

StatusOr<Suffix> Parser::ParseBracket() {
  const Position position = Current().position;
  ++next_;
  Suffix suffix;
  suffix.kind = SuffixKind::kSubscript;
  suffix.children.resize(1);
  if (IsOp("]")) {
    return Unexpected("an index");
  }
  size_t part = 0;
  while (!IsOp("]")) {
    if (SkipOp(":")) {
      suffix.kind = SuffixKind::kSlice;
      suffix.children.resize(3);
      if (++part > 2) {
        return SyntaxError(position, "a slice has at most three parts");
      }
      continue;
    }
    if (suffix.children[part] != nullptr) {
      return Unexpected("']'");
    }
    HEADROOM_ASSIGN_OR_RETURN(suffix.children[part], ParseExpression());
  }
  ++next_;
  return suffix;
}

StatusOr<Suffix> Parser::ParseFilter() {
  Suffix suffix;
  suffix.kind = SuffixKind::kFilter;
  suffix.position = Current().position;
  HEADROOM_ASSIGN_OR_RETURN(suffix.text, ExpectAnyName("the name of a filter"));
  suffix.filter = FindFilter(suffix.text);
  if (suffix.filter == nullptr) {
    return SyntaxError(suffix.position,
                       fmt::format("the filter '{}' is not supported", suffix.text));
  }
  if (IsOp("(")) {
    HEADROOM_ASSIGN_OR_RETURN(suffix.args, ParseCallArgs());
  }
  return suffix;
}

StatusOr<Suffix> Parser::ParseTest() {
  HEADROOM_RETURN_IF_ERROR(ExpectName("is"));
  Suffix suffix;
  suffix.kind = SuffixKind::kTest;
  suffix.negated = SkipName("not");
  const Position position = Current().position;
  HEADROOM_ASSIGN_OR_RETURN(suffix.text, ExpectAnyName("the name of a test"));
  suffix.test = FindTest(suffix.text);
  if (suffix.test == nullptr) {
    return SyntaxError(position, fmt::format("the test '{}' is not supported", suffix.text));
  }
  HEADROOM_RETURN_IF_ERROR(ParseTestArgument(suffix.args));
  return suffix;
}

// `is divisibleby 3` and `is divisibleby(3)` are the same.
Status Parser::ParseTestArgument(CallArgs& args) {
  if (IsOp("(")) {
    HEADROOM_ASSIGN_OR_RETURN(args, ParseCallArgs());
    return OkStatus();
  }
  static constexpr std::string_view kNotAnArgument[] = {"else", "or",  "and", "if",
                                                        "is",   "not", "in"};
  const TokenKind kind = Current().kind;
  bool starts = kind == TokenKind::kName || kind == TokenKind::kString ||
                kind == TokenKind::kInteger || kind == TokenKind::kFloat || IsOp("[") || IsOp("{");
  for (const std::string_view word : kNotAnArgument) {
    starts = starts && !IsName(word);
  }
  if (!starts) {
    return OkStatus();
  }
  const Level level(*this);
  HEADROOM_RETURN_IF_ERROR(CheckDepth());
  HEADROOM_ASSIGN_OR_RETURN(ExprPtr argument, ParsePrimary());
  HEADROOM_RETURN_IF_ERROR(ParseSuffixes(argument, /*filters=*/false));
  args.positional.push_back(std::move(argument));
  return OkStatus();
}

StatusOr<CallArgs> Parser::ParseCallArgs() {
  HEADROOM_RETURN_IF_ERROR(ExpectOp("("));
  CallArgs args;
  while (!IsOp(")")) {
    if (IsOp("*") || IsOp("**")) {
      return SyntaxError(Current().position, "* and ** in a call are not supported");
    }
    if (Current().kind == TokenKind::kName && Following().Is(TokenKind::kOperator, "=")) {
      std::string name = Current().text;
      next_ += 2;
      HEADROOM_ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
      args.named.emplace_back(std::move(name), std::move(value));
    } else if (!args.named.empty()) {
      return Unexpected("an argument with a name (others come before)");
    } else {
      HEADROOM_ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
      args.positional.push_back(std::move(value));
    }
    if (!IsOp(")")) {
      HEADROOM_RETURN_IF_ERROR(ExpectOp(","));
    }
  }
  ++next_;
  return args;
}

}  // namespace headroom::models::jinja
