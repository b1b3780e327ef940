// Published chat templates against what Jinja2 renders from them, byte for byte.
#include <algorithm>
#include <filesystem>

#include "tests/support/test_data.h"
#include "tests/unit/models/chat_template_test_util.h"

namespace headroom::models::testing {
namespace {

using ::headroom::testing::SharedDataPath;

// The golden files whose name starts with `prefix`, in order.
std::vector<std::filesystem::path> Goldens(const std::string& folder, const std::string& prefix) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with(prefix)) {
      files.push_back(entry.path());
    }
  }
  std::ranges::sort(files);
  return files;
}

void CheckGolden(const std::string& templates, const std::filesystem::path& golden) {
  SCOPED_TRACE(golden.filename().string());
  const Value record = Json(ReadFile(golden));
  const std::string source = ReadFile(templates + "/" + Text(*Find(record, "template")));
  const auto rendered = RenderTemplate(source, InputFrom(*Find(record, "context")));
  if (const Value* expected = Find(record, "expected")) {
    ASSERT_TRUE(rendered.ok()) << rendered.status();
    EXPECT_EQ(rendered->text, Text(*expected));
    return;
  }
  const std::string error = Text(*Find(record, "error"));
  ASSERT_FALSE(rendered.ok()) << "wanted the error: " << error;
  EXPECT_EQ(rendered.status().code(), StatusCode::kInvalidArgument);
  if (error.find("is undefined") == std::string::npos) {
    EXPECT_EQ(StatusMessage(rendered.status()), error) << "raise_exception's own text";
  } else {
    EXPECT_TRUE(StatusMessage(rendered.status()).starts_with(error)) << rendered.status();
  }
}

class PublishedTemplateTest : public ::testing::TestWithParam<const char*> {};

TEST_P(PublishedTemplateTest, RendersEveryConversationAsJinja2Does) {
  const auto templates = SharedDataPath("chat_templates");
  if (!templates) {
    GTEST_SKIP() << "no chat_templates in the shared data folder";
  }
  const auto goldens = Goldens(*templates + "/goldens", GetParam());
  ASSERT_EQ(goldens.size(), 5u);
  for (const auto& golden : goldens) {
    CheckGolden(*templates, golden);
  }
}

INSTANTIATE_TEST_SUITE_P(All, PublishedTemplateTest,
                         ::testing::Values("Bielik-11B", "GLM-4.6", "HuggingFaceTB-SmolLM3",
                                           "LFM2-8B", "NousResearch", "Qwen-Qwen2.5", "Qwen-Qwen3",
                                           "deepseek-ai", "fireworks-ai", "google-gemma",
                                           "ibm-granite", "meetkai", "meta-llama-Llama-3.1",
                                           "meta-llama-Llama-3.2", "microsoft-Phi", "mistralai"));

TEST(SmolLm2TemplateTest, RendersTheGoldenChats) {
  const auto prompts = SharedDataPath("goldens/smollm2/prompts.jsonl");
  if (!prompts) {
    GTEST_SKIP() << "no goldens/smollm2 in the shared data folder";
  }
  constexpr std::string_view kHead =
      "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
      "<|im_end|>\n<|im_start|>user\n";
  constexpr std::string_view kTail = "<|im_end|>\n<|im_start|>assistant\n";
  std::istringstream lines(ReadFile(*prompts));
  int num_chats = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string text = Text(*Find(Json(line), "text"));
    if (!text.starts_with(kHead) || !text.ends_with(kTail)) {
      continue;
    }
    ++num_chats;
    const std::string content =
        text.substr(kHead.size(), text.size() - kHead.size() - kTail.size());
    ChatInput input;
    input.messages = Value::List({Value::Dict(
        {{"role", Value::MessageString("user")}, {"content", Value::MessageString(content)}})});
    const auto rendered = RenderTemplate(kSmolLm2Template, input);
    ASSERT_TRUE(rendered.ok()) << rendered.status();
    EXPECT_EQ(rendered->text, text);
    // The role and the content came with the request, nothing else.
    ASSERT_EQ(rendered->message_ranges.size(), 2u);
    const auto end = static_cast<int64_t>(text.size() - kTail.size());
    EXPECT_EQ(rendered->message_ranges[0].begin, static_cast<int64_t>(kHead.size()) - 5);
    EXPECT_EQ(rendered->message_ranges[0].end, static_cast<int64_t>(kHead.size()) - 1);
    EXPECT_EQ(rendered->message_ranges[1].begin, static_cast<int64_t>(kHead.size()));
    EXPECT_EQ(rendered->message_ranges[1].end, end);
  }
  EXPECT_GE(num_chats, 4);
}

}  // namespace
}  // namespace headroom::models::testing
