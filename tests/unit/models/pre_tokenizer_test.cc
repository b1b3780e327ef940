#include "models/tokenizer/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headroom::models {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Words(PreTokenizerKind kind, std::string_view text) {
  std::vector<size_t> ends;
  PreTokenize(kind, text, &ends);
  std::vector<std::string> words;
  size_t begin = 0;
  for (const size_t end : ends) {
    words.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

TEST(Gpt2PreTokenizerTest, CutsWordsNumbersAndSymbols) {
  EXPECT_THAT(Words(PreTokenizerKind::kGpt2, "Hello, world 12+34!"),
              ElementsAre("Hello", ",", " world", " 12", "+", "34", "!"));
}

TEST(Gpt2PreTokenizerTest, CutsLowerCaseContractionsOff) {
  EXPECT_THAT(Words(PreTokenizerKind::kGpt2, "I'll they're 'D it's"),
              ElementsAre("I", "'ll", " they", "'re", " '", "D", " it", "'s"));
}

TEST(Gpt2PreTokenizerTest, LeavesTheLastSpaceToTheNextWord) {
  EXPECT_THAT(Words(PreTokenizerKind::kGpt2, "a   b\n\nc  "),
              ElementsAre("a", "  ", " b", "\n", "\n", "c", "  "));
}

TEST(Gpt2PreTokenizerTest, KnowsLettersOfAllScriptsAndUnicodeSpace) {
  EXPECT_THAT(Words(PreTokenizerKind::kGpt2, "\xD0\xBD\xD0\xB5\xE6\x88\x91\xC2\xBD\xC2\xA0x"),
              ElementsAre("\xD0\xBD\xD0\xB5\xE6\x88\x91", "\xC2\xBD", "\xC2\xA0", "x"));
}

TEST(Gpt2PreTokenizerTest, TakesBytesThatAreNotUtf8AsSymbols) {
  EXPECT_THAT(Words(PreTokenizerKind::kGpt2, "a\xFF\xC3!b"), ElementsAre("a", "\xFF\xC3!", "b"));
}

TEST(SmolLmPreTokenizerTest, CutsEveryDigitOff) {
  EXPECT_THAT(Words(PreTokenizerKind::kSmolLm, "x 123  4y"),
              ElementsAre("x", " ", "1", "2", "3", "  ", "4", "y"));
}

TEST(Llama3PreTokenizerTest, TakesUpToThreeDigits) {
  EXPECT_THAT(Words(PreTokenizerKind::kLlama3, "1234567 8"),
              ElementsAre("123", "456", "7", " ", "8"));
  EXPECT_THAT(Words(PreTokenizerKind::kQwen2, "123"), ElementsAre("1", "2", "3"));
}

TEST(Llama3PreTokenizerTest, TakesOneSymbolInFrontOfAWordAndLineBreaksAfterSymbols) {
  EXPECT_THAT(Words(PreTokenizerKind::kLlama3, "(foo) !\n\nbar\tbaz"),
              ElementsAre("(foo", ")", " !\n\n", "bar", "\tbaz"));
}

TEST(Llama3PreTokenizerTest, EndsWhiteSpaceAtTheLastLineBreak) {
  EXPECT_THAT(Words(PreTokenizerKind::kLlama3, "a \n \n   b"),
              ElementsAre("a", " \n \n", "  ", " b"));
}

TEST(Llama3PreTokenizerTest, CutsContractionsOfAnyCaseOff) {
  EXPECT_THAT(Words(PreTokenizerKind::kLlama3, "I'LL we'Ve x'y"),
              ElementsAre("I", "'LL", " we", "'Ve", " x", "'y"));
}

TEST(DeepSeekPreTokenizerTest, CutsOnePatternAfterTheOther) {
  EXPECT_THAT(
      Words(PreTokenizerKind::kDeepSeekLlm, "Hi there!\n 42 \xE6\x88\x91\xE6\x83\xB3x "),
      ElementsAre("Hi", " there", "!", "\n", " ", "42", " ", "\xE6\x88\x91\xE6\x83\xB3", "x", " "));
}

TEST(PreTokenizerTest, KnowsNamesAndListsThem) {
  EXPECT_EQ(FindPreTokenizer("smollm")->kind, PreTokenizerKind::kSmolLm);
  EXPECT_EQ(FindPreTokenizer("")->kind, PreTokenizerKind::kGpt2);
  EXPECT_TRUE(FindPreTokenizer("llama-bpe")->ignore_merges);
  EXPECT_FALSE(FindPreTokenizer("nonesuch").has_value());
  EXPECT_THAT(PreTokenizerNames(), ::testing::HasSubstr("smollm"));
}

// Words are contiguous, not empty and cover the text, whatever it holds.
TEST(PreTokenizerTest, CoversEveryTextWithWords) {
  const char* units[] = {"a", " ", "\n", "7", "'", "\xE3\x80\x80", "\xFF", "\xE2\x96", "'s", "\r "};
  for (const PreTokenizerKind kind :
       {PreTokenizerKind::kGpt2, PreTokenizerKind::kSmolLm, PreTokenizerKind::kLlama3,
        PreTokenizerKind::kQwen2, PreTokenizerKind::kDeepSeekLlm}) {
    for (const char* first : units) {
      for (const char* second : units) {
        for (const char* third : units) {
          const std::string text = std::string(first) + second + third + first;
          std::vector<size_t> ends;
          PreTokenize(kind, text, &ends);
          ASSERT_FALSE(ends.empty());
          EXPECT_EQ(ends.back(), text.size());
          for (size_t i = 0; i < ends.size(); ++i) {
            EXPECT_GT(ends[i], i == 0 ? 0 : ends[i - 1]);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace headroom::models
