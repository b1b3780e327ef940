// Tokens -> syntax tree, after the grammar of pallets/jinja:src/jinja2/parser.py.
//
// Recursion is bounded: every bracket, block and prefix counts one level, and more than `max_depth`
// of them is an error. What Jinja has and Headroom does not (import, include, extends, block,
// recursive loops, *args, unknown filters and tests) is an error with line and column.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "models/chat_template/ast.h"
#include "models/chat_template/lexer.h"

namespace headroom::models::jinja {

class Parser {
 public:
  Parser(std::vector<Token> tokens, int32_t max_depth)
      : tokens_(std::move(tokens)), max_depth_(max_depth) {}

  StatusOr<Program> ParseProgram();

 private:
  // --- parser.cc: tokens and names ---
  const Token& Current() const { return tokens_[next_]; }
  const Token& Following() const { return tokens_[std::min(next_ + 1, tokens_.size() - 1)]; }
  bool IsOp(std::string_view spelling) const {
    return Current().Is(TokenKind::kOperator, spelling);
  }
  bool IsName(std::string_view spelling) const { return Current().Is(TokenKind::kName, spelling); }
  bool SkipOp(std::string_view spelling);
  bool SkipName(std::string_view spelling);
  Status ExpectOp(std::string_view spelling);
  Status ExpectName(std::string_view spelling);
  StatusOr<std::string> ExpectAnyName(std::string_view what);
  Status ExpectBlockEnd(std::string_view tag);
  Status Unexpected(std::string_view wanted) const;
  int32_t Intern(const std::string& name);
  // Counts a level of nesting for as long as it lives.
  class Level;
  Status CheckDepth() const;

  // --- parser_expr.cc: expressions, loosest binding first ---
  StatusOr<ExprPtr> ParseExpression() { return ParseConditional(); }
  StatusOr<ExprPtr> ParseConditional();
  StatusOr<ExprPtr> ParseOr();
  StatusOr<ExprPtr> ParseAnd();
  StatusOr<ExprPtr> ParseNot();
  StatusOr<ExprPtr> ParseCompare();
  StatusOr<ExprPtr> ParseSum();
  StatusOr<ExprPtr> ParseConcat();
  StatusOr<ExprPtr> ParseProduct();
  StatusOr<ExprPtr> ParsePower();
  StatusOr<ExprPtr> ParseUnary();
  // Expressions parted by commas: a tuple, or the one expression. `conditional` false leaves an
  // `if` to the caller (the filter of a for loop).
  StatusOr<ExprPtr> ParseTuple(bool conditional, bool in_parentheses);
  bool AtTupleEnd() const;

  // --- parser_primary.cc: literals, brackets, suffixes ---
  StatusOr<ExprPtr> ParsePrimary();
  StatusOr<ExprPtr> ParseParentheses();
  StatusOr<ExprPtr> ParseListLiteral();
  StatusOr<ExprPtr> ParseDictLiteral();
  // `.a`, `[b]`, `(c)` and, when `filters`, `|f` and `is t`, onto expr.
  Status ParseSuffixes(ExprPtr& expr, bool filters);
  StatusOr<Suffix> ParseDot();
  StatusOr<Suffix> ParseBracket();
  StatusOr<Suffix> ParseFilter();
  StatusOr<Suffix> ParseTest();
  Status ParseTestArgument(CallArgs& args);
  StatusOr<CallArgs> ParseCallArgs();

  // --- parser_stmt.cc: statements ---
  // Statements up to a block tag whose name is in `ends`; that tag's name is consumed and written
  // to `end` (empty at the end of the file, allowed only with no `ends`).
  StatusOr<Block> ParseBlock(const std::vector<std::string_view>& ends, Position opened,
                             std::string& end);
  // A tag that stands alone in its body: parses to `{% end %}` and past it.
  Status ParseBody(Stmt& stmt, std::string_view end);
  StatusOr<std::unique_ptr<Stmt>> ParseOutput();
  StatusOr<std::unique_ptr<Stmt>> ParseTag();
  Status ParseIf(Stmt& stmt);
  Status ParseFor(Stmt& stmt);
  Status ParseSet(Stmt& stmt);
  Status ParseMacro(Stmt& stmt);
  Status ParseCall(Stmt& stmt);
  Status ParseFilterBlock(Stmt& stmt);
  Status ParseWith(Stmt& stmt);
  Status ParseGeneration(Stmt& stmt);
  Status ParseLoopControl(Stmt& stmt, StmtKind kind);
  Status ParseTargets(Stmt& stmt, bool attributes);
  StatusOr<Target> ParseTarget(bool attribute);
  Status ParseParameters(Stmt& stmt);

  std::vector<Token> tokens_;
  size_t next_ = 0;
  int32_t max_depth_;
  int32_t depth_ = 0;
  int32_t loop_depth_ = 0;  // loops around the current statement, within its macro
  std::vector<std::string> names_;
  std::unordered_map<std::string, int32_t> name_index_;
};

class Parser::Level {
 public:
  explicit Level(Parser& parser) : parser_(parser) { ++parser_.depth_; }
  ~Level() { --parser_.depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Parser& parser_;
};

}  // namespace headroom::models::jinja
