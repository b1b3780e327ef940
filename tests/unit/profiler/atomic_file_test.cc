#include "profiler/atomic_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace headroom::profiler {
namespace {

class AtomicFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string PathOf(const char* name) const { return (folder_ / name).string(); }
  static std::string Read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  size_t NumFiles() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  std::filesystem::path folder_;
};

TEST_F(AtomicFileTest, ReplacesAFileAndLeavesNothingElse) {
  ASSERT_TRUE(WriteFileAtomically(PathOf("a"), "a longer first text").ok());
  ASSERT_TRUE(WriteFileAtomically(PathOf("a"), "second").ok());
  EXPECT_EQ(Read(PathOf("a")), "second");
  EXPECT_EQ(NumFiles(), 1u);
}

TEST_F(AtomicFileTest, ChecksWithoutTouchingTheFile) {
  ASSERT_TRUE(WriteFileAtomically(PathOf("a"), "kept").ok());
  EXPECT_TRUE(CheckWritable(PathOf("a")).ok());
  EXPECT_TRUE(CheckWritable(PathOf("b")).ok());
  EXPECT_EQ(Read(PathOf("a")), "kept");
  EXPECT_EQ(NumFiles(), 1u);
}

TEST_F(AtomicFileTest, NamesThePathThatCannotBeWritten) {
  for (const std::string& path : {PathOf("no/such/folder"), folder_.string()}) {
    const Status checked = CheckWritable(path);
    EXPECT_FALSE(checked.ok());
    EXPECT_NE(StatusMessage(checked).find(path), std::string::npos);
    EXPECT_FALSE(WriteFileAtomically(path, "x").ok());
  }
  EXPECT_EQ(NumFiles(), 0u);
}

}  // namespace
}  // namespace headroom::profiler
