// Ids that other implementations gave, on their published vocabularies.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "models/gguf.h"
#include "models/gguf_tokenizer.h"
#include "models/tokenizer/tokenizer.h"
#include "tests/support/test_data.h"

namespace headroom::models {
namespace {

std::unique_ptr<Tokenizer> LoadTokenizer(const std::string& path) {
  StatusOr<std::unique_ptr<MappedFile>> file = MappedFile::Open(path);
  if (!file.ok()) {
    ADD_FAILURE() << file.status();
    return nullptr;
  }
  StatusOr<GgufFile> gguf = GgufFile::Parse((*file)->bytes(), path);
  if (!gguf.ok()) {
    ADD_FAILURE() << gguf.status();
    return nullptr;
  }
  StatusOr<std::optional<TokenizerData>> data = ReadGgufTokenizer(*gguf);
  if (!data.ok() || !data->has_value()) {
    ADD_FAILURE() << data.status() << " or no vocabulary in " << path;
    return nullptr;
  }
  StatusOr<std::unique_ptr<Tokenizer>> tokenizer = CreateTokenizer(std::move(**data));
  if (!tokenizer.ok()) {
    ADD_FAILURE() << tokenizer.status();
    return nullptr;
  }
  return std::move(tokenizer).value();
}

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::vector<std::string> Split(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end = text.find(separator); end != std::string::npos;
       end = text.find(separator, begin)) {
    parts.push_back(text.substr(begin, end - begin));
    begin = end + separator.size();
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::vector<int32_t> ParseIds(const std::string& line) {
  std::istringstream numbers(line);
  return {std::istream_iterator<int32_t>(numbers), std::istream_iterator<int32_t>()};
}

class TokenizerVectorsTest : public ::testing::TestWithParam<const char*> {};

TEST_P(TokenizerVectorsTest, GivesTheIdsOfAllVectors) {
  const std::string prefix = std::string("tokenizers/") + GetParam();
  const std::optional<std::string> vocabulary = testing::SharedDataPath(prefix + ".vocab.gguf");
  if (!vocabulary.has_value()) {
    GTEST_SKIP() << "no shared data: " << prefix << ".vocab.gguf";
  }
  const std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer(*vocabulary);
  ASSERT_NE(tokenizer, nullptr);
  // The last string and the last line of ids are empty: both files end in a separator.
  const std::vector<std::string> inputs =
      Split(ReadFile(*testing::SharedDataPath(prefix + ".inp")), "\n__ggml_vocab_test__\n");
  const std::vector<std::string> outputs =
      Split(ReadFile(*testing::SharedDataPath(prefix + ".out")), "\n");
  ASSERT_EQ(inputs.size(), 47u);
  ASSERT_EQ(outputs.size(), inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::vector<int32_t> ids = tokenizer->Encode(inputs[i], false, false);
    EXPECT_EQ(ids, ParseIds(outputs[i])) << "string " << i << ": '" << inputs[i] << "'";
    IncrementalDetokenizer detokenizer(*tokenizer, false);
    std::string text;
    for (const int32_t id : ids) {
      text += detokenizer.Add(id);
    }
    EXPECT_EQ(text + detokenizer.Flush(), inputs[i]) << "string " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerVectorsTest,
                         ::testing::Values("llama-spm", "phi-3", "gpt-2", "deepseek-llm"),
                         [](const ::testing::TestParamInfo<const char*>& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(SmolLm2TokenizerTest, GivesTheIdsOfAllPrompts) {
  const std::optional<std::string> model = testing::SmolLm2Path();
  const std::optional<std::string> prompts =
      testing::SharedDataPath("goldens/smollm2/prompts.jsonl");
  if (!model.has_value() || !prompts.has_value()) {
    GTEST_SKIP() << "no SmolLM2 GGUF or no shared data";
  }
  const std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer(*model);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->vocab_size(), 49152);
  std::ifstream lines(*prompts);
  int num_prompts = 0;
  for (std::string line; std::getline(lines, line); ++num_prompts) {
    const nlohmann::json prompt = nlohmann::json::parse(line);
    EXPECT_EQ(tokenizer->Encode(prompt["text"].get<std::string>(), false, true),
              prompt["ids"].get<std::vector<int32_t>>())
        << prompt["name"];
    IncrementalDetokenizer detokenizer(*tokenizer);
    std::string greedy;
    for (const nlohmann::json& id : prompt["greedy_ids"]) {
      const int32_t token = id.get<int32_t>();
      greedy += tokenizer->Type(token) == TokenType::kControl
                    ? std::string(tokenizer->TokenPiece(token))
                    : detokenizer.Add(token);
    }
    EXPECT_EQ(greedy, prompt["greedy_text"].get<std::string>()) << prompt["name"];
  }
  EXPECT_EQ(num_prompts, 12);
}

}  // namespace
}  // namespace headroom::models
