#include "models/chat_template/parser.h"

namespace headroom::models::jinja {

namespace {

std::string Describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kText:
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kOutputBegin:
      return "'{{'";
    case TokenKind::kOutputEnd:
      return "'}}'";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return "a number";
    case TokenKind::kName:
    case TokenKind::kOperator:
      break;
  }
  return fmt::format("'{}'", token.text.substr(0, 60));
}

}  // namespace

bool Parser::SkipOp(std::string_view spelling) {
  if (!IsOp(spelling)) {
    return false;
  }
  ++next_;
  return true;
}

bool Parser::SkipName(std::string_view spelling) {
  if (!IsName(spelling)) {
    return false;
  }
  ++next_;
  return true;
}

Status Parser::Unexpected(std::string_view wanted) const {
  return SyntaxError(Current().position,
                     fmt::format("unexpected {}, wanted {}", Describe(Current()), wanted));
}

Status Parser::ExpectOp(std::string_view spelling) {
  return SkipOp(spelling) ? OkStatus() : Unexpected(fmt::format("'{}'", spelling));
}

Status Parser::ExpectName(std::string_view spelling) {
  return SkipName(spelling) ? OkStatus() : Unexpected(fmt::format("'{}'", spelling));
}

StatusOr<std::string> Parser::ExpectAnyName(std::string_view what) {
  if (Current().kind != TokenKind::kName) {
    return Unexpected(what);
  }
  return tokens_[next_++].text;
}

Status Parser::ExpectBlockEnd(std::string_view tag) {
  if (Current().kind != TokenKind::kBlockEnd) {
    return Unexpected(fmt::format("the end of '{}' ('%}}')", tag));
  }
  ++next_;
  return OkStatus();
}

int32_t Parser::Intern(const std::string& name) {
  const auto [place, inserted] = name_index_.emplace(name, static_cast<int32_t>(names_.size()));
  if (inserted) {
    names_.push_back(name);
  }
  return place->second;
}

Status Parser::CheckDepth() const {
  if (depth_ <= max_depth_) {
    return OkStatus();
  }
  return SyntaxError(Current().position,
                     fmt::format("brackets and blocks are nested more than {} deep", max_depth_));
}

StatusOr<Program> Parser::ParseProgram() {
  std::string end;
  HEADROOM_ASSIGN_OR_RETURN(Block body, ParseBlock({}, {1, 1}, end));
  Program program;
  program.body = std::move(body);
  program.names = std::move(names_);
  return program;
}

}  // namespace headroom::models::jinja
