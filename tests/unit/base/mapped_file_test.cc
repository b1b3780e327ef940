#include "base/mapped_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace headroom {
namespace {

class MappedFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/headroom_mapped_file_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& content) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

  std::string folder_;
};

TEST_F(MappedFileTest, ShowsTheBytesOfTheFile) {
  const std::string content("a\0b\xff", 4);
  const auto file = MappedFile::Open(Write("some", content));
  ASSERT_TRUE(file.ok()) << StatusMessage(file.status());
  const std::span<const uint8_t> bytes = (*file)->bytes();
  EXPECT_EQ(std::string(bytes.begin(), bytes.end()), content);
  EXPECT_EQ((*file)->path(), folder_ + "/some");
}

TEST_F(MappedFileTest, AnEmptyFileHasNoBytes) {
  const auto file = MappedFile::Open(Write("empty", ""));
  ASSERT_TRUE(file.ok()) << StatusMessage(file.status());
  EXPECT_TRUE((*file)->bytes().empty());
}

TEST_F(MappedFileTest, AMissingFileIsNamedWithTheReason) {
  const auto file = MappedFile::Open(folder_ + "/absent");
  EXPECT_EQ(file.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(StatusMessage(file.status()),
            folder_ + "/absent: cannot open: No such file or directory");
}

TEST_F(MappedFileTest, AFolderIsRefused) {
  const auto file = MappedFile::Open(folder_);
  EXPECT_EQ(file.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(StatusMessage(file.status()), folder_ + ": not a regular file");
}

}  // namespace
}  // namespace headroom
