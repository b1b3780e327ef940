#include "server/cli/flag_sources.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

namespace headroom::server {
namespace {

// Sets an environment variable for one test.
class ScopedEnvironment {
 public:
  ScopedEnvironment(const char* name, const char* value) : name_(name) {
    ::setenv(name, value, /*overwrite=*/1);
  }
  ~ScopedEnvironment() { ::unsetenv(name_); }

 private:
  const char* name_;
};

class FlagSourcesTest : public testing::Test {
 protected:
  FlagSourcesTest() {
    app_.add_option("model", model_);
    app_.add_option("--max-queued", max_queued_)->check(CLI::Range(1, 100));
    app_.add_option("--ratio", ratio_)->check(FiniteDecimal());
    app_.add_flag("--check-invariants", check_);
  }

  // Parses like the command line does: flags first, the other sources after.
  Status Run(std::vector<std::string> arguments, const ConfigFile& config = {}) {
    std::reverse(arguments.begin(), arguments.end());
    app_.parse(arguments);
    return ApplySources(app_, "serve", config, "file.conf");
  }

  CLI::App app_{"test"};
  std::string model_ = "default";
  int32_t max_queued_ = 7;
  double ratio_ = 0.5;
  bool check_ = false;
};

TEST_F(FlagSourcesTest, TheFlagGoesBeforeTheEnvironmentBeforeTheFileBeforeTheDefault) {
  const ConfigFile config = {{"serve", {{"max-queued", {"20", 2}}}}};
  EXPECT_TRUE(Run({}).ok());
  EXPECT_EQ(max_queued_, 7);
  EXPECT_TRUE(Run({}, config).ok());
  EXPECT_EQ(max_queued_, 20);
  app_.clear();
  {
    const ScopedEnvironment environment("HEADROOM_MAX_QUEUED", "30");
    EXPECT_TRUE(Run({}, config).ok());
    EXPECT_EQ(max_queued_, 30);
    app_.clear();
    EXPECT_TRUE(Run({"--max-queued", "40"}, config).ok());
    EXPECT_EQ(max_queued_, 40);
  }
}

TEST_F(FlagSourcesTest, PositionalsAndFlagsWithoutValuesHaveSourcesToo) {
  const ScopedEnvironment environment("HEADROOM_CHECK_INVARIANTS", "true");
  EXPECT_TRUE(Run({}, {{"serve", {{"model", {"from-file", 1}}}}}).ok());
  EXPECT_EQ(model_, "from-file");
  EXPECT_TRUE(check_);
}

TEST_F(FlagSourcesTest, AnUnknownKeyNamesTheNearestAndItsLine) {
  const Status status = Run({}, {{"serve", {{"max-quued", {"20", 3}}}}});
  ASSERT_FALSE(status.ok());
  const std::string message = StatusMessage(status);
  EXPECT_NE(message.find("file.conf:3"), std::string::npos) << message;
  EXPECT_NE(message.find("did you mean max-queued"), std::string::npos) << message;
}

TEST_F(FlagSourcesTest, OtherSectionsAreNotRead) {
  EXPECT_TRUE(Run({}, {{"bench engine", {{"max-queued", {"20", 1}}}}}).ok());
  EXPECT_EQ(max_queued_, 7);
}

TEST_F(FlagSourcesTest, AnUnknownSectionNamesTheNearest) {
  const Status status = CheckSections({{"sreve", {}}}, {"serve", "bench engine"}, "file.conf");
  ASSERT_FALSE(status.ok());
  EXPECT_NE(StatusMessage(status).find("[serve]"), std::string::npos);
  EXPECT_TRUE(CheckSections({{"bench engine", {}}}, {"serve", "bench engine"}, "f").ok());
}

TEST_F(FlagSourcesTest, ABadValueIsRefusedWhereverItComesFrom) {
  {
    const ScopedEnvironment environment("HEADROOM_MAX_QUEUED", "1000");
    const Status status = Run({});
    ASSERT_FALSE(status.ok());
    EXPECT_NE(StatusMessage(status).find("HEADROOM_MAX_QUEUED"), std::string::npos);
  }
  app_.clear();
  const Status status = Run({}, {{"serve", {{"max-queued", {"abc", 4}}}}});
  ASSERT_FALSE(status.ok());
  EXPECT_NE(StatusMessage(status).find("file.conf:4"), std::string::npos);
}

TEST_F(FlagSourcesTest, DecimalsAreFiniteAndPlain) {
  for (const char* good : {"0.25", "1", "-0.5", "+2", ".5", "1."}) {
    EXPECT_NO_THROW((void)Run({"--ratio", good})) << good;
    app_.clear();
  }
  for (const char* bad : {"nan", "inf", "1e-1", "0x1p3", "1,5", "", ".", "-", "1.2.3", " 1"}) {
    EXPECT_THROW((void)Run({"--ratio=" + std::string(bad)}), CLI::ParseError) << bad;
    app_.clear();
  }
}

TEST_F(FlagSourcesTest, NearestIsByEditDistance) {
  EXPECT_EQ(NearestName("prot", {"host", "port", "threads"}), "port");
  EXPECT_EQ(NearestName("thread", {"host", "port", "threads"}), "threads");
}

TEST(TakeConfigPathTest, MayStandAnywhereAndIsTakenOut) {
  std::vector<std::string> split = {"serve", "--config", "a.conf", "m"};
  EXPECT_EQ(TakeConfigPath(&split).value(), "a.conf");
  EXPECT_EQ(split, (std::vector<std::string>{"serve", "m"}));
  std::vector<std::string> joined = {"--config=b.conf", "serve", "m"};
  EXPECT_EQ(TakeConfigPath(&joined).value(), "b.conf");
  EXPECT_EQ(joined, (std::vector<std::string>{"serve", "m"}));
  std::vector<std::string> none = {"serve"};
  EXPECT_EQ(TakeConfigPath(&none).value(), "");
  std::vector<std::string> cut = {"serve", "--config"};
  EXPECT_FALSE(TakeConfigPath(&cut).ok());
  const ScopedEnvironment environment("HEADROOM_CONFIG", "env.conf");
  EXPECT_EQ(TakeConfigPath(&none).value(), "env.conf");
}

class ConfigFileTest : public testing::Test {
 protected:
  StatusOr<ConfigFile> Read(const std::string& text) {
    const std::filesystem::path path =
        std::filesystem::path(testing::TempDir()) / "headroom_flag_sources_test.conf";
    std::ofstream(path, std::ios::binary) << text;
    auto config = ReadConfigFile(path.string());
    std::filesystem::remove(path);
    return config;
  }
};

TEST_F(ConfigFileTest, ReadsSectionsCommentsAndQuotes) {
  const auto config = Read(
      "# comment\n; comment\n\n[serve]\r\nport = 8001 # why\n  host=127.0.0.1\n"
      "model = \"a # b\"\n[bench engine]\nport = 1\n[empty]\n");
  ASSERT_TRUE(config.ok()) << StatusMessage(config.status());
  EXPECT_EQ(config->at("serve").at("port").value, "8001");
  EXPECT_EQ(config->at("serve").at("port").line, 5);
  EXPECT_EQ(config->at("serve").at("host").value, "127.0.0.1");
  EXPECT_EQ(config->at("serve").at("model").value, "a # b");
  EXPECT_EQ(config->at("bench engine").at("port").value, "1");
  EXPECT_EQ(config->count("empty"), 1u);
}

TEST_F(ConfigFileTest, RefusesWhatItCannotRead) {
  for (const char* text :
       {"port = 1\n", "[serve\n", "[serve]\nport\n", "[serve]\nport = 1\nport = 2\n"}) {
    EXPECT_FALSE(Read(text).ok()) << text;
  }
  EXPECT_FALSE(ReadConfigFile("/no/such/file.conf").ok());
}

}  // namespace
}  // namespace headroom::server
