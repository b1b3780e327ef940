// The syntax tree of a template. Chains (a + b + c, x.y[0]|f, elif) are flat lists, so the depth of
// the tree is the depth of brackets and blocks in the source, which the parser limits.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/chat_template/lexer.h"
#include "models/chat_template/value.h"

namespace headroom::models::jinja {

struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using Block = std::vector<std::unique_ptr<Stmt>>;

struct FilterEntry;  // filters.h
struct TestEntry;    // value_tests.h

enum class ExprKind : uint8_t {
  kConstant,     // value
  kName,         // name
  kList,         // children
  kTuple,        // children
  kDict,         // children: key, value, key, value, ...
  kArithmetic,   // children[0] ops[0] children[1] ops[1] ..., left to right
  kCompare,      // children[0] ops[0] children[1] and children[1] ops[1] children[2] ...
  kConcat,       // children, joined as text (~)
  kAnd,          // children
  kOr,           // children
  kNot,          // children[0]; ops.size() times
  kSign,         // children[0]; ops: kSubtract or kAdd, outermost first
  kConditional,  // children: value, condition, value, condition, ..., else (null: undefined)
  kPostfix,      // children[0], then suffixes from left to right
};

enum class Op : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
  kNot,
};

struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
};

enum class SuffixKind : uint8_t {
  kAttribute,  // .text
  kSubscript,  // [children[0]]
  kSlice,      // [children[0]:children[1]:children[2]], each may be null
  kCall,       // (args)
  kFilter,     // |text(args)
  kTest,       // is text(args), negated
};

struct Suffix {
  SuffixKind kind = SuffixKind::kAttribute;
  Position position;
  std::string text;
  std::vector<ExprPtr> children;
  CallArgs args;
  const FilterEntry* filter = nullptr;  // kFilter
  const TestEntry* test = nullptr;      // kTest
  bool negated = false;                 // kTest
};

struct Expr {
  ExprKind kind = ExprKind::kConstant;
  Position position;
  Value value;
  int32_t name = -1;  // index into Program::names
  std::vector<ExprPtr> children;
  std::vector<Op> ops;
  std::vector<Suffix> suffixes;
};

enum class StmtKind : uint8_t {
  kText,         // text
  kOutput,       // exprs, each printed
  kIf,           // exprs[i] guards blocks[i]; one more block is the else
  kFor,          // targets in exprs[0], filter exprs[1] or null; blocks: body, else
  kSet,          // target(s) = exprs[0]
  kSetBlock,     // target = rendered blocks[0] through filters
  kMacro,        // name, parameters, blocks[0]
  kCallBlock,    // exprs[0] is a call; parameters, blocks[0] is its caller
  kFilterBlock,  // rendered blocks[0] through filters
  kWith,         // targets = exprs in a new scope, blocks[0]
  kBreak,
  kContinue,
};

// A place to assign to: a name, or an attribute of a namespace.
struct Target {
  int32_t name = -1;
  std::string attribute;  // empty: the name itself
};

struct Parameter {
  int32_t name = -1;
  ExprPtr default_value;  // null: undefined when not given
};

struct Stmt {
  StmtKind kind = StmtKind::kText;
  Position position;
  Value text;
  int32_t name = -1;
  std::vector<ExprPtr> exprs;
  std::vector<Block> blocks;
  std::vector<Target> targets;
  bool unpacks = false;  // the targets are a tuple, even if of one
  std::vector<Parameter> parameters;
  std::vector<Suffix> filters;  // kSetBlock and kFilterBlock, in order of use
};

struct Program {
  Block body;
  std::vector<std::string> names;  // by index
};

}  // namespace headroom::models::jinja
