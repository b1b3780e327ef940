#include "base/cgroup.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace headroom {
namespace {

class CgroupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/headroom_cgroup_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    mount_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(mount_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = mount_ + "/" + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }

  std::string mount_;
};

TEST_F(CgroupTest, V2TakesTheTightestQuotaUpToTheRoot) {
  Write("a/cpu.max", "150000 100000\n");
  Write("a/b/cpu.max", "400000 100000\n");
  Write("cpu.max", "max 100000\n");
  EXPECT_EQ(CgroupCpuQuota("0::/a/b\n", mount_), 1.5);
  EXPECT_EQ(CgroupCpuQuota("0::/\n", mount_), std::nullopt);
}

TEST_F(CgroupTest, V2InsideAContainerReadsTheRoot) {
  Write("cpu.max", "200000 100000\n");
  EXPECT_EQ(CgroupCpuQuota("0::/\n", mount_), 2.0);
}

TEST_F(CgroupTest, V1ReadsTheCpuControllerAlone) {
  Write("cpu/x/cpu.cfs_quota_us", "50000\n");
  Write("cpu/x/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(CgroupCpuQuota("5:cpuset:/x\n4:cpu,cpuacct:/x\n0::/\n", mount_), 0.5);
  EXPECT_EQ(CgroupCpuQuota("5:cpuset:/x\n", mount_), std::nullopt);
  Write("cpu/x/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(CgroupCpuQuota("4:cpu,cpuacct:/x\n", mount_), std::nullopt);
}

TEST_F(CgroupTest, MalformedTextMeansNoQuota) {
  Write("cpu.max", "lots of it\n");
  for (const char* text : {"", "0", "0:", "no colons\n", "0::/\n", "0::relative\n"}) {
    EXPECT_EQ(CgroupCpuQuota(text, mount_), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace headroom
