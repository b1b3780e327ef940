#include "models/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/models/tokenizer_test_vocabulary.h"

namespace headroom::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Ids = ByteLevelIds;

std::unique_ptr<Tokenizer> Make(TokenizerData data) {
  StatusOr<std::unique_ptr<Tokenizer>> tokenizer = CreateTokenizer(std::move(data));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? std::move(tokenizer).value() : nullptr;
}

std::string CreateError(TokenizerData data) {
  const StatusOr<std::unique_ptr<Tokenizer>> tokenizer = CreateTokenizer(std::move(data));
  return tokenizer.ok() ? "" : StatusMessage(tokenizer.status());
}

// The text in parts; those with `message` true are message bytes.
ProvenancedText Join(const std::vector<std::pair<std::string, bool>>& parts) {
  ProvenancedText joined;
  for (const auto& [text, message] : parts) {
    const auto begin = static_cast<int64_t>(joined.text.size());
    joined.text += text;
    if (message) {
      joined.message_ranges.push_back({begin, static_cast<int64_t>(joined.text.size())});
    }
  }
  return joined;
}

TEST(ByteLevelBpeTest, MergesByRankAndLeftmostFirst) {
  const auto tokenizer = Make(ByteLevelData());
  EXPECT_THAT(tokenizer->Encode("hello", false, false), ElementsAre(Ids::kHello));
  EXPECT_THAT(tokenizer->Encode("hello hello", false, false),
              ElementsAre(Ids::kHello, Ids::kSpaceHello));
  EXPECT_THAT(tokenizer->Encode("hell", false, false), ElementsAre(Ids::kHell));
  // "l l" of the first two l: the third stays alone.
  EXPECT_THAT(tokenizer->Encode("lll", false, false), ElementsAre(Ids::kLl, 'l'));
}

TEST(ByteLevelBpeTest, MergesLongWordsAsItMergesShortOnes) {
  const auto tokenizer = Make(ByteLevelData());
  std::string word;
  std::vector<int32_t> expected;
  for (int i = 0; i < 100; ++i) {
    word += "hellolllhe";
    expected.insert(expected.end(), {Ids::kHello, Ids::kLl, 'l', Ids::kHe});
  }
  EXPECT_EQ(tokenizer->Encode(word, false, false), expected);
}

TEST(ByteLevelBpeTest, SpecialPiecesComeFromTemplateBytesAlone) {
  const auto tokenizer = Make(ByteLevelData());
  EXPECT_THAT(tokenizer->Encode("<|end|>", false, true), ElementsAre(Ids::kEnd));
  EXPECT_THAT(tokenizer->Encode("<|end|>", false, false),
              ElementsAre('<', '|', 'e', 'n', 'd', '|', '>'));
  EXPECT_THAT(tokenizer->Encode("<tool>", false, true), ElementsAre(Ids::kTool));
  EXPECT_THAT(tokenizer->Encode("<tool>", false, false), ElementsAre('<', 't', 'o', 'o', 'l', '>'));
}

TEST(ByteLevelBpeTest, TemplateAndMessageCannotSpellASpecialPieceTogether) {
  const auto tokenizer = Make(ByteLevelData());
  const std::string piece = "<|end|>";
  for (size_t cut = 0; cut <= piece.size(); ++cut) {
    for (const bool message_first : {false, true}) {
      const Encoding encoding = tokenizer->Encode(
          Join({{piece.substr(0, cut), message_first}, {piece.substr(cut), !message_first}}));
      const bool all_template = message_first ? cut == 0 : cut == piece.size();
      EXPECT_EQ(encoding.ids.size(), all_template ? 1u : 7u) << cut << message_first;
    }
  }
}

TEST(ByteLevelBpeTest, UserDefinedWordsAreRecognisedEverywhere) {
  const auto tokenizer = Make(ByteLevelData());
  EXPECT_THAT(tokenizer->Encode("a\xC3\xB8z", false, false), ElementsAre('a', Ids::kOSlash, 'z'));
  EXPECT_EQ(tokenizer->TokenBytes(Ids::kOSlash), "\xC3\xB8");
}

TEST(ByteLevelBpeTest, TemplateAndMessageTextJoinInOneWord) {
  const auto tokenizer = Make(ByteLevelData());
  const Encoding encoding =
      tokenizer->Encode(Join({{"he", false}, {"llo", true}, {"<|end|>", false}, {" h", false}}));
  EXPECT_THAT(encoding.ids, ElementsAre(Ids::kHello, Ids::kEnd, ' ', 'h'));
  EXPECT_THAT(encoding.from_message, ElementsAre(1, 0, 0, 0));
}

TEST(ByteLevelBpeTest, MergesNeverMakeAControlToken) {
  TokenizerData data = ByteLevelData();
  data.tokens.push_back("<|");
  data.tokens.push_back("<|>");
  data.token_types.push_back(TokenType::kNormal);
  data.token_types.push_back(TokenType::kControl);
  data.merges.push_back("< |");
  data.merges.push_back("<| >");
  const auto tokenizer = Make(std::move(data));
  EXPECT_THAT(tokenizer->Encode("<|>", false, false), ElementsAre(264, '>'));
  EXPECT_THAT(tokenizer->Encode("<|>", false, true), ElementsAre(265));
}

TEST(ByteLevelBpeTest, EndOfSequenceIsAControlTokenEvenIfTheFileCallsItNormal) {
  TokenizerData data = ByteLevelData();
  data.token_types[Ids::kEnd] = TokenType::kNormal;
  const auto tokenizer = Make(std::move(data));
  EXPECT_EQ(tokenizer->Type(Ids::kEnd), TokenType::kControl);
  EXPECT_EQ(tokenizer->TokenBytes(Ids::kEnd), "");
  EXPECT_THAT(tokenizer->Encode("<|end|>", false, true), ElementsAre(Ids::kEnd));
}

TEST(ByteLevelBpeTest, TheLongestSpecialPieceWins) {
  TokenizerData data = ByteLevelData();
  data.tokens.push_back("<|end|>er");
  data.token_types.push_back(TokenType::kControl);
  const auto tokenizer = Make(std::move(data));
  EXPECT_THAT(tokenizer->Encode("<|end|>er", false, true), ElementsAre(264));
  EXPECT_THAT(tokenizer->Encode("<|end|>e", false, true), ElementsAre(Ids::kEnd, 'e'));
  // Where a message spells the tail of the longer one, the shorter one still stands.
  EXPECT_THAT(tokenizer->Encode(Join({{"<|end|>", false}, {"er", true}})).ids,
              ElementsAre(Ids::kEnd, 'e', 'r'));
}

TEST(ByteLevelBpeTest, OfEqualPiecesTheLowerIdWins) {
  TokenizerData data = ByteLevelData();
  data.tokens.push_back("hello");
  data.token_types.push_back(TokenType::kNormal);
  const auto tokenizer = Make(std::move(data));
  EXPECT_THAT(tokenizer->Encode("hello", false, false), ElementsAre(Ids::kHello));
  EXPECT_EQ(tokenizer->TokenBytes(264), "hello");
}

TEST(ByteLevelBpeTest, LlamaWordsOfTheVocabularySkipTheMerges) {
  TokenizerData data = ByteLevelData();
  data.pre = "llama-bpe";
  data.tokens.push_back("olleh");  // no merges lead to it
  data.token_types.push_back(TokenType::kNormal);
  EXPECT_THAT(Make(data)->Encode("olleh", false, false), ElementsAre(264));
  data.pre = "gpt-2";
  EXPECT_THAT(Make(data)->Encode("olleh", false, false), ElementsAre('o', Ids::kLl, 'e', 'h'));
}

TEST(ByteLevelBpeTest, BytesWithoutAPieceBecomeTheReplacementCharacter) {
  TokenizerData data = ByteLevelData();
  data.tokens[0xFF] = "unrelated";
  data.unk_id = 0;
  EXPECT_THAT(Make(data)->Encode("a\xFF", false, false), ElementsAre('a', 0xEF, 0xBF, 0xBD));
  data.tokens[0xBF] = "also unrelated";
  EXPECT_THAT(Make(data)->Encode("a\xFF", false, false), ElementsAre('a', 0));
  data.unk_id = -1;
  EXPECT_THAT(Make(data)->Encode("a\xFF", false, false), ElementsAre('a'));
  data.unk_id = Ids::kEnd;
  EXPECT_THAT(Make(data)->Encode("a\xFF", false, false), ElementsAre('a'));
}

TEST(TokenizerTest, AddsTheBosOnlyWhenAskedAndGiven) {
  const auto spm = Make(SentencePieceData());
  EXPECT_EQ(spm->Encode("a", true, false).front(), 1);
  EXPECT_NE(spm->Encode("a", false, false).front(), 1);
  const auto byte_level = Make(ByteLevelData());
  EXPECT_THAT(byte_level->Encode("a", true, false), ElementsAre('a'));
  EXPECT_THAT(byte_level->Encode("", true, false), IsEmpty());
}

TEST(TokenizerTest, FindsSpecialPiecesByTheirSpelling) {
  const auto tokenizer = Make(ByteLevelData());
  EXPECT_EQ(tokenizer->FindSpecial("<|end|>"), Ids::kEnd);
  EXPECT_EQ(tokenizer->FindSpecial("<tool>"), Ids::kTool);
  EXPECT_EQ(tokenizer->FindSpecial("hello"), -1);
  EXPECT_EQ(tokenizer->FindSpecial(""), -1);
  EXPECT_EQ(tokenizer->TokenPiece(Ids::kEnd), "<|end|>");
}

TEST(TokenizerTest, IdsOutOfRangeStandForNothing) {
  const auto tokenizer = Make(ByteLevelData());
  for (const int32_t id : {-1, tokenizer->vocab_size(), std::numeric_limits<int32_t>::max(),
                           std::numeric_limits<int32_t>::min()}) {
    EXPECT_EQ(tokenizer->TokenBytes(id), "");
    EXPECT_EQ(tokenizer->TokenPiece(id), "");
    EXPECT_EQ(tokenizer->Type(id), TokenType::kUnknown);
  }
}

TEST(TokenizerTest, IgnoresEmptyRangesAndRangesPastTheText) {
  const auto tokenizer = Make(ByteLevelData());
  ProvenancedText text;
  text.text = "<|end|>";
  text.message_ranges = {{-5, -1}, {0, 0}, {3, 3}, {7, 7}, {90, 100}};
  EXPECT_THAT(tokenizer->Encode(text).ids, ElementsAre(Ids::kEnd));
  text.message_ranges = {{-5, 1}};
  EXPECT_EQ(tokenizer->Encode(text).ids.size(), 7u);
}

// "llama": pieces 259.. are "▁a", "ab", "abc", "s>", "▁", "a", "b", "c", "s", "<", ">", "/".
TEST(SentencePieceBpeTest, MergesTheBestScoreFirst) {
  const auto tokenizer = Make(SentencePieceData());
  EXPECT_THAT(tokenizer->Encode("a", false, false), ElementsAre(259));
  // "▁a" scores above "ab", so "abc" is never reached after the prefix space.
  EXPECT_THAT(tokenizer->Encode("abc", false, false), ElementsAre(259, 265, 266));
  EXPECT_THAT(tokenizer->Encode("babc", false, false), ElementsAre(263, 265, 261));
}

TEST(SentencePieceBpeTest, SpellsUnknownCharactersInBytes) {
  const auto tokenizer = Make(SentencePieceData());
  EXPECT_THAT(tokenizer->Encode("a\xC3\xA9\xFF", false, false),
              ElementsAre(259, 3 + 0xC3, 3 + 0xA9, 3 + 0xFF));
  EXPECT_EQ(tokenizer->TokenBytes(3 + 0xC3), "\xC3");
}

TEST(SentencePieceBpeTest, UsesTheUnknownTokenWithoutBytePieces) {
  TokenizerData data = SentencePieceData();
  std::fill(data.token_types.begin() + 3, data.token_types.begin() + 259, TokenType::kUnused);
  EXPECT_THAT(Make(data)->Encode("az", false, false), ElementsAre(259, 0));
}

TEST(SentencePieceBpeTest, TextNeverMergesIntoControlOrBytePieces) {
  const auto tokenizer = Make(SentencePieceData());
  // "s>" is a piece, so "<s>" is one merge away; "</s>" and "<0x0A>" are spelt out as well.
  EXPECT_THAT(tokenizer->Encode("<s>", false, false), ElementsAre(263, 268, 262));
  EXPECT_THAT(tokenizer->Encode("<s>", false, true), ElementsAre(1));
  for (const int32_t id : tokenizer->Encode("</s><0x0A><unk>", false, false)) {
    EXPECT_NE(id, 0);
    EXPECT_NE(id, 2);
    EXPECT_NE(id, 3 + 0x0A);
  }
}

TEST(SentencePieceBpeTest, PrefixesASpaceAtTheStartAndAfterSpecialPieces) {
  TokenizerData data = SentencePieceData();
  EXPECT_THAT(Make(data)->Encode("a</s>a", false, true), ElementsAre(259, 2, 259));
  EXPECT_TRUE(Make(data)->strips_leading_space());
  data.add_space_prefix = false;
  EXPECT_THAT(Make(data)->Encode("a</s> a", false, true), ElementsAre(264, 2, 259));
  EXPECT_FALSE(Make(data)->strips_leading_space());
}

TEST(SentencePieceBpeTest, KnowsWhichTokensHoldMessageBytes) {
  const auto tokenizer = Make(SentencePieceData());
  const Encoding encoding =
      tokenizer->Encode(Join({{"b", false}, {" a\xC3", true}, {"\xA9 ", false}, {"c", true}}));
  EXPECT_THAT(encoding.ids, ElementsAre(263, 265, 259, 3 + 0xC3, 3 + 0xA9, 263, 266));
  EXPECT_THAT(encoding.from_message, ElementsAre(0, 0, 1, 1, 0, 0, 1));
}

TEST(SentencePieceBpeTest, PiecesThatReachIntoTheNextWordStillMerge) {
  TokenizerData data = SentencePieceData();
  data.tokens.push_back("b\xE2\x96\x81");
  data.token_types.push_back(TokenType::kNormal);
  data.scores.push_back(1);
  const auto tokenizer = Make(std::move(data));
  EXPECT_THAT(tokenizer->Encode("b a", false, false), ElementsAre(263, 271, 264));
}

TEST(ByteTokenizerTest, GivesBytesAndSpecialPieces) {
  const auto tokenizer = CreateByteTokenizer({"<bos>", "<eos>"}, 0, 1);
  EXPECT_EQ(tokenizer->vocab_size(), 258);
  EXPECT_EQ(tokenizer->bos_id(), 256);
  EXPECT_EQ(tokenizer->eos_id(), 257);
  EXPECT_THAT(tokenizer->Encode("a\xFF<eos>", true, true), ElementsAre(256, 'a', 0xFF, 257));
  EXPECT_EQ(tokenizer->Encode("<eos>", false, false).size(), 5u);
  EXPECT_EQ(tokenizer->TokenBytes(0), std::string_view("\0", 1));
  EXPECT_EQ(tokenizer->TokenBytes(257), "");
  EXPECT_EQ(CreateByteTokenizer({}, -1, -1)->eos_id(), -1);
}

TEST(CreateTokenizerTest, NamesWhatIsWrong) {
  struct Case {
    const char* name;
    void (*spoil)(TokenizerData&);
    const char* message;
  };
  const Case cases[] = {
      {"model", [](TokenizerData& d) { d.model = "bert"; }, "unknown model 'bert'"},
      {"pre", [](TokenizerData& d) { d.pre = "nonesuch"; }, "unknown pre-tokenizer 'nonesuch'"},
      {"empty", [](TokenizerData& d) { d.tokens.clear(); }, "the vocabulary has 0 pieces"},
      {"scores", [](TokenizerData& d) { d.scores = {1}; }, "1 scores for 264 pieces"},
      {"types", [](TokenizerData& d) { d.token_types.pop_back(); }, "263 token types for 264"},
      {"type", [](TokenizerData& d) { d.token_types[7] = static_cast<TokenType>(9); },
       "piece 7 has the unknown type 9"},
      {"bos", [](TokenizerData& d) { d.bos_id = 264; }, "the BOS id is 264"},
      {"eos", [](TokenizerData& d) { d.eos_id = -2; }, "the EOS id is -2"},
      {"unk", [](TokenizerData& d) { d.unk_id = 1 << 30; }, "the unknown-token id is 1073741824"},
      {"add bos", [](TokenizerData& d) { d.add_bos = true; }, "no BOS id"},
      {"add eos", [](TokenizerData& d) { d.add_eos = true, d.eos_id = -1; }, "no EOS id"},
      {"long", [](TokenizerData& d) { d.tokens[3].assign(5000, 'x'); }, "piece 3 has 5000 bytes"},
      {"merge left", [](TokenizerData& d) { d.merges[2] = "xyz ll"; },
       "merge 2 is 'xyz ll', but 'xyz' is no piece"},
      {"merge right", [](TokenizerData& d) { d.merges[2] = "he xyz"; }, "'xyz' is no piece"},
      {"merge result", [](TokenizerData& d) { d.merges[2] = "he he"; }, "'hehe' is no piece"},
      {"merge form", [](TokenizerData& d) { d.merges[1] = "hello"; }, "merge 1 is 'hello', wanted"},
      {"merge end", [](TokenizerData& d) { d.merges[1] = "he "; }, "merge 1 is 'he ', wanted"},
      {"merge empty", [](TokenizerData& d) { d.merges[1] = ""; }, "merge 1 is '', wanted"},
      {"byte",
       [](TokenizerData& d) {
         d.tokens[5] = "<0x-1>";
         d.token_types[5] = TokenType::kByte;
       },
       "byte piece 5 is '<0x-1>'"},
      {"byte digits",
       [](TokenizerData& d) {
         d.tokens[5] = "<0x1G>";
         d.token_types[5] = TokenType::kByte;
       },
       "byte piece 5 is '<0x1G>'"},
  };
  ASSERT_EQ(CreateError(ByteLevelData()), "");
  for (const Case& test : cases) {
    TokenizerData data = ByteLevelData();
    test.spoil(data);
    EXPECT_THAT(CreateError(std::move(data)), HasSubstr(test.message)) << test.name;
  }
}

TEST(CreateTokenizerTest, WantsScoresThatAreNumbersForSentencePiece) {
  TokenizerData data = SentencePieceData();
  data.scores[4] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(CreateError(data), HasSubstr("the score of piece 4"));
  data.scores.clear();
  EXPECT_THAT(CreateError(data), HasSubstr("no scores"));
}

}  // namespace
}  // namespace headroom::models
