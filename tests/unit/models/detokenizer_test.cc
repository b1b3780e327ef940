#include <gtest/gtest.h>

#include "models/tokenizer/tokenizer.h"
#include "models/tokenizer/utf8.h"
#include "tests/unit/models/tokenizer_test_vocabulary.h"

namespace headroom::models {
namespace {

// What Python's bytes.decode("utf-8", "replace") gives, computed there.
struct Decoded {
  std::string bytes;
  std::string text;
};
const std::string kR = "\xEF\xBF\xBD";
const Decoded kDecoded[] = {
    {"abc", "abc"},
    {"\xC3\xA9", "\xC3\xA9"},
    {"\xC3", kR},
    {"\x80", kR},
    {"\x80\xBF", kR + kR},
    {"\xC0\x80", kR + kR},
    {"\xC1\xBF", kR + kR},
    {"\xE2\x82", kR},
    {"\xE2\x82z", kR + "z"},
    {"\xE2\x28\xA1", kR + "(" + kR},
    {"\xE0\x80\x80", kR + kR + kR},
    {"\xED\xA0\x80", kR + kR + kR},
    {"\xEF\xBF\xBE", "\xEF\xBF\xBE"},
    {"\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80"},
    {"\xF0\x9F\x98", kR},
    {"\xF0\x9F\x98z", kR + "z"},
    {"\xF0\x9F\xF0\x9F\x98\x80", kR + "\xF0\x9F\x98\x80"},
    {"\xF0\x80\x80\x80", kR + kR + kR + kR},
    {"\xF4\x90\x80\x80", kR + kR + kR + kR},
    {"\xF5\x80", kR + kR},
    {"\xFF\xFE", kR + kR},
    {"\xE2\xE2\x82\xAC", kR + "\xE2\x82\xAC"},
    {"\xF1\x80\xC3\xA9", kR + "\xC3\xA9"},
};

std::string Detokenize(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                       bool continues_text = true) {
  IncrementalDetokenizer detokenizer(tokenizer, continues_text);
  std::string text;
  for (const int32_t id : ids) {
    text += detokenizer.Add(id);
  }
  return text + detokenizer.Flush();
}

TEST(IncrementalDetokenizerTest, ReplacesIllFormedBytesAsPythonDoes) {
  const auto tokenizer = CreateByteTokenizer({}, -1, -1);
  for (const Decoded& test : kDecoded) {
    EXPECT_EQ(Detokenize(*tokenizer, tokenizer->Encode(test.bytes, false, false)), test.text)
        << ::testing::PrintToString(test.bytes);
  }
}

TEST(IncrementalDetokenizerTest, HoldsBytesBackUntilTheCharacterIsWhole) {
  const auto tokenizer = CreateByteTokenizer({"<end>"}, -1, 0);
  IncrementalDetokenizer detokenizer(*tokenizer);
  EXPECT_EQ(detokenizer.Add(0xE2), "");
  EXPECT_EQ(detokenizer.Add(0x82), "");
  EXPECT_EQ(detokenizer.Add(256), "");
  EXPECT_EQ(detokenizer.Add(0xAC), "\xE2\x82\xAC");
  EXPECT_EQ(detokenizer.Add(0xF0), "");
  EXPECT_EQ(detokenizer.Add('x'), kR + "x");
  EXPECT_EQ(detokenizer.Flush(), "");
}

TEST(IncrementalDetokenizerTest, FlushesAnUnfinishedCharacterAsOneReplacement) {
  const auto tokenizer = CreateByteTokenizer({}, -1, -1);
  IncrementalDetokenizer detokenizer(*tokenizer);
  for (const int32_t byte : {0xF0, 0x9F, 0x98}) {
    EXPECT_EQ(detokenizer.Add(byte), "");
  }
  EXPECT_EQ(detokenizer.Flush(), kR);
  EXPECT_EQ(detokenizer.Flush(), "");
}

TEST(IncrementalDetokenizerTest, IgnoresIdsOutOfRangeAndControlTokens) {
  const auto tokenizer = CreateByteTokenizer({"<end>"}, -1, 0);
  EXPECT_EQ(Detokenize(*tokenizer, {'a', -1, 256, 257, 1 << 30, 'b'}), "ab");
}

TEST(IncrementalDetokenizerTest, StripsThePrefixSpaceOfATextStartOnly) {
  StatusOr<std::unique_ptr<Tokenizer>> tokenizer = CreateTokenizer(SentencePieceData());
  ASSERT_TRUE(tokenizer.ok());
  const std::vector<int32_t> ids = (*tokenizer)->Encode("a a", true, false);
  EXPECT_EQ(Detokenize(**tokenizer, ids, false), "a a");
  EXPECT_EQ(Detokenize(**tokenizer, ids, true), " a a");
  EXPECT_EQ(Detokenize(**tokenizer, (*tokenizer)->Encode("  b", false, false), false), "  b");
}

TEST(DecodeUtf8Test, TellsTruncatedFromIllFormed) {
  EXPECT_EQ(DecodeUtf8("\xF0\x9F", 0).result, Utf8Result::kTruncated);
  EXPECT_EQ(DecodeUtf8("\xF0\x9F", 0).num_bytes, 2);
  EXPECT_EQ(DecodeUtf8("\xF0\x9Fx", 0).result, Utf8Result::kIllFormed);
  EXPECT_EQ(DecodeUtf8("\xF0\x9Fx", 0).num_bytes, 2);
  EXPECT_EQ(DecodeUtf8("\xF5", 0).result, Utf8Result::kIllFormed);
}

TEST(DecodeUtf8Test, ReadsBackEveryCodePoint) {
  for (char32_t code_point = 0; code_point < 0x110000; ++code_point) {
    if (code_point >= 0xD800 && code_point < 0xE000) {
      continue;
    }
    std::string text;
    AppendUtf8(code_point, &text);
    const Utf8Char c = DecodeUtf8(text, 0);
    ASSERT_EQ(c.code_point, code_point);
    ASSERT_EQ(static_cast<size_t>(c.num_bytes), text.size());
    ASSERT_EQ(c.result, Utf8Result::kCharacter);
  }
}

}  // namespace
}  // namespace headroom::models
