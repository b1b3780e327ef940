// The library call: the same file as the command line's, which is driven here by its own code.
#include "server/fastgen.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "server/cli/cli.h"

namespace headroom::server {
namespace {

std::string Slurp(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class FastGenTest : public ::testing::Test {
 protected:
  FastGenTest() {
    folder_ =
        std::filesystem::path(::testing::TempDir()) /
        ("fastgen_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::create_directories(folder_);
  }
  ~FastGenTest() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

std::vector<std::string> Prompts() {
  std::vector<std::string> prompts;
  for (int i = 0; i < 6; ++i) {
    std::string text;
    for (int word = 0; word < 60; ++word) {
      text += "word" + std::to_string(word * (i + 3)) + (word % 9 == 0 ? ". " : " ");
    }
    prompts.push_back(text);
  }
  return prompts;
}

TEST_F(FastGenTest, SavesWhatTheCommandLineWrites) {
  FastGenOptions options;
  options.budget_ratio = 0.25;
  options.validate = false;
  options.threads = 1;
  const auto config = ProfileModel("builtin:tiny", Prompts(), options);
  ASSERT_TRUE(config.ok()) << StatusMessage(config.status());
  const std::string saved = (folder_ / "saved.json").string();
  ASSERT_TRUE(config->Save(saved).ok());

  const std::string prompts = (folder_ / "prompts.txt").string();
  {
    std::ofstream file(prompts);
    // Another order, and records that end in the line break of a file: not the same text unless
    // written as JSON lines.
    const std::vector<std::string> texts = Prompts();
    for (auto text = texts.rbegin(); text != texts.rend(); ++text) {
      file << "{\"text\": \"" << *text << "\"}\n";
    }
  }
  std::filesystem::rename(prompts, folder_ / "prompts.jsonl");
  std::vector<std::string> arguments = {"headroom",
                                        "profile",
                                        "builtin:tiny",
                                        "--prompts",
                                        (folder_ / "prompts.jsonl").string(),
                                        "--out",
                                        (folder_ / "cli.json").string(),
                                        "--budget-ratio",
                                        "0.25",
                                        "--no-validate",
                                        "--threads",
                                        "2",
                                        "--quiet"};
  std::vector<char*> raw;
  for (std::string& argument : arguments) {
    raw.push_back(argument.data());
  }
  ::testing::internal::CaptureStdout();
  const int code = RunCli(static_cast<int>(raw.size()), raw.data());
  ::testing::internal::GetCapturedStdout();
  ASSERT_EQ(code, kExitOk);
  EXPECT_EQ(Slurp(saved), Slurp(folder_ / "cli.json"));
  EXPECT_EQ(Slurp(saved), config->Text());
  EXPECT_TRUE(engine::ParseHeadMap(config->Text()).ok());
}

TEST_F(FastGenTest, SaysWhatIsWrong) {
  EXPECT_FALSE(ProfileModel("builtin:tiny", {"   "}).ok());
  EXPECT_FALSE(ProfileModel("builtin:tiny", Prompts(), {.budget_ratio = 0.0}).ok());
  EXPECT_FALSE(ProfileModel("builtin:none", Prompts()).ok());
  EXPECT_FALSE(ProfileModel("builtin:needle-1hop", {"It has no tokenizer."}).ok());
}

}  // namespace
}  // namespace headroom::server
