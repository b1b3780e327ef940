#include "models/gguf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/mapped_file.h"
#include "tests/support/model_file_writers.h"
#include "tests/support/test_data.h"

namespace headroom::models {
namespace {

using ::testing::ElementsAre;
using testing::GgufWriter;
using ::testing::HasSubstr;

GgufWriter Vocabulary() {
  GgufWriter file;
  file.String("tokenizer.ggml.model", "llama");
  file.Strings("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "<|im_end|>", "a", "<|eot_id|>"});
  file.Numbers<float>("tokenizer.ggml.scores", testing::kF32, {0, 0, 0, 0, -1, -2});
  // unknown, control, control, control, normal, normal
  file.Numbers<int32_t>("tokenizer.ggml.token_type", testing::kI32, {2, 3, 3, 3, 1, 1});
  file.Number<uint32_t>("tokenizer.ggml.bos_token_id", testing::kU32, 1);
  file.Number<uint32_t>("tokenizer.ggml.unknown_token_id", testing::kU32, 0);
  return file;
}

// What reading the file says, or the error.
std::string ErrorOf(const GgufWriter& writer) {
  const std::vector<uint8_t> bytes = writer.Build();
  const StatusOr<GgufFile> file = GgufFile::Parse(bytes, "v.gguf");
  EXPECT_TRUE(file.ok()) << file.status();
  const StatusOr<std::optional<TokenizerData>> data = ReadGgufTokenizer(*file);
  if (!data.ok()) {
    return StatusMessage(data.status());
  }
  const StatusOr<std::vector<int32_t>> ids = ReadGgufEosIds(*file, **data);
  return ids.ok() ? "no error" : StatusMessage(ids.status());
}

TEST(GgufTokenizerTest, ReadsAVocabularyWithItsDefaults) {
  const std::vector<uint8_t> bytes = Vocabulary().Build();
  const StatusOr<GgufFile> file = GgufFile::Parse(bytes, "v.gguf");
  ASSERT_TRUE(file.ok()) << file.status();
  const StatusOr<std::optional<TokenizerData>> data = ReadGgufTokenizer(*file);
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_TRUE(data->has_value());
  EXPECT_EQ((*data)->model, "llama");
  EXPECT_EQ((*data)->pre, "default");
  EXPECT_EQ((*data)->tokens.size(), 6u);
  EXPECT_EQ((*data)->scores[5], -2.0f);
  EXPECT_EQ((*data)->token_types[0], TokenType::kUnknown);
  EXPECT_EQ((*data)->token_types[4], TokenType::kNormal);
  EXPECT_EQ((*data)->bos_id, 1);
  EXPECT_EQ((*data)->eos_id, -1);
  EXPECT_TRUE((*data)->add_bos);  // SentencePiece models do unless they say otherwise
  EXPECT_FALSE((*data)->add_eos);
}

TEST(GgufTokenizerTest, EosIdsAreTheUnionOfMetadataAndControlPieces) {
  GgufWriter writer = Vocabulary();
  writer.Number<uint32_t>("tokenizer.ggml.eot_token_id", testing::kU32, 4);
  const std::vector<uint8_t> bytes = writer.Build();
  const StatusOr<GgufFile> file = GgufFile::Parse(bytes, "v.gguf");
  const StatusOr<std::optional<TokenizerData>> data = ReadGgufTokenizer(*file);
  ASSERT_TRUE(data.ok());
  // </s> and <|im_end|> are control pieces, 4 is named; <|eot_id|> is ordinary text here.
  EXPECT_THAT(*ReadGgufEosIds(*file, **data), ElementsAre(2, 3, 4));
}

TEST(GgufTokenizerTest, IsAbsentWithoutTokens) {
  const std::vector<uint8_t> bytes = GgufWriter().String("a", "some text").Build();
  const StatusOr<GgufFile> file = GgufFile::Parse(bytes, "v.gguf");
  ASSERT_TRUE(file.ok());
  EXPECT_FALSE(ReadGgufTokenizer(*file)->has_value());
}

TEST(GgufTokenizerTest, RefusesListsOfOtherLengthsAndIdsOutside) {
  GgufWriter base;
  base.String("tokenizer.ggml.model", "gpt2").Strings("tokenizer.ggml.tokens", {"a", "b"});
  const std::pair<std::function<void(GgufWriter&)>, const char*> cases[] = {
      {[](GgufWriter& w) { w.Numbers<float>("tokenizer.ggml.scores", testing::kF32, {0.0f}); },
       "has 1 elements, wanted 2"},
      {[](GgufWriter& w) {
         w.Numbers<int32_t>("tokenizer.ggml.token_type", testing::kI32, {1, 1, 1});
       },
       "has 3 elements, wanted 2"},
      {[](GgufWriter& w) {
         w.Numbers<int32_t>("tokenizer.ggml.token_type", testing::kI32, {1, 7});
       },
       "token 1 has type 7"},
      {[](GgufWriter& w) { w.Number<uint32_t>("tokenizer.ggml.bos_token_id", testing::kU32, 2); },
       "\"tokenizer.ggml.bos_token_id\" is 2, wanted an id below the vocabulary's 2"},
      {[](GgufWriter& w) { w.Number<int32_t>("tokenizer.ggml.eot_token_id", testing::kI32, -5); },
       "\"tokenizer.ggml.eot_token_id\" is -5"},
      {[](GgufWriter& w) { w.Number<int32_t>("tokenizer.ggml.eot_token_id", testing::kI32, -1); },
       "no error"},
      {[](GgufWriter& w) { w.String("tokenizer.ggml.merges", "a b"); }, "an array of strings"},
      {[](GgufWriter& w) { w.String("tokenizer.ggml.add_bos_token", "yes"); }, "wanted a bool"},
  };
  for (const auto& [change, error] : cases) {
    GgufWriter writer = base;
    change(writer);
    EXPECT_THAT(ErrorOf(writer), HasSubstr(error));
  }
}

TEST(GgufTokenizerTest, ReadsPublishedVocabularies) {
  struct Expected {
    const char* file;
    const char* model;
    const char* pre;
    size_t num_tokens;
  };
  for (const Expected& expected :
       {Expected{"llama-spm", "llama", "default", 32000},
        Expected{"phi-3", "llama", "default", 32064}, Expected{"gpt-2", "gpt2", "gpt-2", 50257},
        Expected{"deepseek-llm", "gpt2", "deepseek-llm", 102400}}) {
    const auto path =
        testing::SharedDataPath(std::string("tokenizers/") + expected.file + ".vocab.gguf");
    if (!path.has_value()) {
      GTEST_SKIP() << "shared test data is absent: tokenizers/";
    }
    const auto mapped = MappedFile::Open(*path);
    ASSERT_TRUE(mapped.ok()) << mapped.status();
    const StatusOr<GgufFile> file = GgufFile::Parse((*mapped)->bytes(), *path);
    ASSERT_TRUE(file.ok()) << file.status();
    const StatusOr<std::optional<TokenizerData>> data = ReadGgufTokenizer(*file);
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_EQ((*data)->model, expected.model) << expected.file;
    EXPECT_EQ((*data)->pre, expected.pre) << expected.file;
    EXPECT_EQ((*data)->tokens.size(), expected.num_tokens) << expected.file;
  }
}

}  // namespace
}  // namespace headroom::models
