#include "engine/token_classes.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace headroom::engine {
namespace {

// A byte tokenizer with pieces of its own behind the bytes.
class Pieces final : public models::Tokenizer {
 public:
  struct Piece {
    std::string bytes;
    models::TokenType type = models::TokenType::kNormal;
  };
  explicit Pieces(std::vector<Piece> pieces) : pieces_(std::move(pieces)) {}

  using models::Tokenizer::Encode;
  int32_t vocab_size() const override { return static_cast<int32_t>(pieces_.size()); }
  int32_t bos_id() const override { return -1; }
  int32_t eos_id() const override { return -1; }
  bool add_bos() const override { return false; }
  models::Encoding Encode(const models::ProvenancedText& text) const override { return {}; }
  std::string_view TokenBytes(int32_t id) const override {
    const Piece& piece = pieces_[static_cast<size_t>(id)];
    return piece.type == models::TokenType::kControl ? std::string_view() : piece.bytes;
  }
  std::string_view TokenPiece(int32_t id) const override {
    return pieces_[static_cast<size_t>(id)].bytes;
  }
  models::TokenType Type(int32_t id) const override {
    return pieces_[static_cast<size_t>(id)].type;
  }
  int32_t FindSpecial(std::string_view piece) const override { return -1; }
  bool strips_leading_space() const override { return false; }

 private:
  std::vector<Piece> pieces_;
};

TEST(TokenClassesTest, FollowTheContentOfAPiece) {
  struct Case {
    Pieces::Piece piece;
    TokenClass wanted;
  };
  const std::vector<Case> cases = {
      {{"word"}, TokenClass::kOther},
      {{" word"}, TokenClass::kOther},
      {{"."}, TokenClass::kPunctuation},
      {{" ("}, TokenClass::kPunctuation},
      {{"?!\""}, TokenClass::kPunctuation},
      {{".\n"}, TokenClass::kPunctuation},
      {{"\n"}, TokenClass::kPunctuation},
      {{"    \n\n"}, TokenClass::kPunctuation},
      {{"end\n"}, TokenClass::kPunctuation},
      {{"\xE3\x80\x82"}, TokenClass::kPunctuation},  // the ideographic full stop
      {{" "}, TokenClass::kOther},
      {{"\t  "}, TokenClass::kOther},
      {{""}, TokenClass::kOther},
      {{"."
        "a"},
       TokenClass::kOther},
      {{"+"}, TokenClass::kOther},     // a symbol
      {{"\xE3"}, TokenClass::kOther},  // part of a character
      {{"<s>", models::TokenType::kControl}, TokenClass::kSpecial},
      {{"pad", models::TokenType::kControl}, TokenClass::kSpecial},
      {{"<tool>", models::TokenType::kUserDefined}, TokenClass::kSpecial},
      {{"\xC3\xB8", models::TokenType::kUserDefined}, TokenClass::kOther}};
  std::vector<Pieces::Piece> pieces;
  for (const Case& test : cases) {
    pieces.push_back(test.piece);
  }
  const TokenClasses classes = ClassifyVocabulary(Pieces(pieces));
  ASSERT_EQ(classes->size(), cases.size());
  for (size_t id = 0; id < cases.size(); ++id) {
    EXPECT_EQ((*classes)[id], cases[id].wanted) << "piece " << id << ": " << pieces[id].bytes;
  }
}

TEST(TokenClassesTest, APromptTakesThemFromTheVocabulary) {
  const TokenClasses vocabulary =
      ClassifyVocabulary(Pieces({{"a"}, {"."}, {"<s>", models::TokenType::kControl}}));
  const std::vector<int32_t> ids = {2, 0, 1, 0};
  EXPECT_EQ(*ClassifyPrompt(vocabulary, ids),
            (std::vector<TokenClass>{TokenClass::kSpecial, TokenClass::kOther,
                                     TokenClass::kPunctuation, TokenClass::kOther}));
  EXPECT_EQ(ClassifyPrompt(nullptr, ids), nullptr);
}

}  // namespace
}  // namespace headroom::engine
