#include "engine/token_classes.h"

#include <string_view>

#include "models/tokenizer/unicode.h"
#include "models/tokenizer/utf8.h"

namespace headroom::engine {
namespace {

using models::CharClass;

// What the characters of a piece are.
struct PieceContent {
  bool has_line_break = false;
  bool has_mark = false;         // punctuation or a symbol
  bool only_punctuation = true;  // beside white space
  bool is_blank = true;
};

PieceContent ContentOf(std::string_view text) {
  PieceContent content;
  for (size_t i = 0; i < text.size();) {
    const models::Utf8Char character = models::DecodeUtf8(text, i);
    i += static_cast<size_t>(character.num_bytes);
    const CharClass char_class = character.result == models::Utf8Result::kCharacter
                                     ? models::ClassOf(character.code_point)
                                     : CharClass::kOther;
    content.has_line_break |= character.code_point == U'\n';
    content.has_mark |= char_class == CharClass::kPunctuation || char_class == CharClass::kSymbol;
    if (char_class != CharClass::kSpace) {
      content.is_blank = false;
      content.only_punctuation &= char_class == CharClass::kPunctuation;
    }
  }
  return content;
}

TokenClass ClassOfToken(const models::Tokenizer& tokenizer, int32_t id) {
  const models::TokenType type = tokenizer.Type(id);
  if (type == models::TokenType::kControl ||
      (type == models::TokenType::kUserDefined && ContentOf(tokenizer.TokenPiece(id)).has_mark)) {
    return TokenClass::kSpecial;
  }
  const PieceContent content = ContentOf(tokenizer.TokenBytes(id));
  const bool punctuates = content.has_line_break || (content.only_punctuation && !content.is_blank);
  return punctuates ? TokenClass::kPunctuation : TokenClass::kOther;
}

}  // namespace

TokenClasses ClassifyVocabulary(const models::Tokenizer& tokenizer) {
  auto classes = std::make_shared<std::vector<TokenClass>>();
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    classes->push_back(ClassOfToken(tokenizer, id));
  }
  return classes;
}

TokenClasses ClassifyPrompt(const TokenClasses& vocabulary, std::span<const int32_t> ids) {
  if (vocabulary == nullptr) {
    return nullptr;
  }
  auto classes = std::make_shared<std::vector<TokenClass>>();
  for (const int32_t id : ids) {
    const auto index = static_cast<size_t>(id);
    classes->push_back(index < vocabulary->size() ? (*vocabulary)[index] : TokenClass::kOther);
  }
  return classes;
}

}  // namespace headroom::engine
