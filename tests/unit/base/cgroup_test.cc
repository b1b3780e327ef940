#include "base/cgroup.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/available_memory.h"

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

TEST_F(CgroupTest, MemoryLeftIsTheLeastOfLimitLessUseUpToTheRoot) {
  Write("a/b/memory.max", "9000\n");
  Write("a/b/memory.current", "1000\n");
  Write("a/memory.max", "6000\n");
  Write("a/memory.current", "1500\n");
  Write("memory.max", "max\n");
  Write("memory.current", "123456\n");
  EXPECT_EQ(CgroupMemoryLeft("0::/a/b\n", mount_), 4500);
  EXPECT_EQ(CgroupMemoryLeft("0::/\n", mount_), std::nullopt);
  Write("a/memory.current", "7000\n");  // over its limit
  EXPECT_EQ(CgroupMemoryLeft("0::/a/b\n", mount_), 0);
}

TEST_F(CgroupTest, MemoryOfV1IsReadBesideOtherControllers) {
  Write("memory/a/memory.limit_in_bytes", "5000\n");
  Write("memory/a/memory.usage_in_bytes", "2000\n");
  Write("memory/memory.limit_in_bytes", "9223372036854771712\n");  // none
  Write("memory/memory.usage_in_bytes", "2000\n");
  EXPECT_EQ(CgroupMemoryLeft("5:memory:/a\n4:cpu,cpuacct:/b\n", mount_), 3000);
  EXPECT_EQ(CgroupMemoryLeft("5:memory:/\n", mount_), std::nullopt);
}

TEST(AvailableMemoryTest, ReadsMemAvailableAndNothingElse) {
  EXPECT_EQ(ParseMemAvailable("MemTotal: 10 kB\nMemFree: 2 kB\nMemAvailable:   7 kB\n"), 7 * 1024);
  EXPECT_EQ(ParseMemAvailable("MemTotal: 10 kB\nMemFree: 2 kB\n"), std::nullopt);
  EXPECT_EQ(ParseMemAvailable("MemAvailable: -1 kB\n"), std::nullopt);
  EXPECT_EQ(ParseMemAvailable("MemAvailable: 99999999999999999999 kB\n"), std::nullopt);
  EXPECT_GT(AvailableMemoryBytes(), 0);
}

}  // namespace
}  // namespace headroom
