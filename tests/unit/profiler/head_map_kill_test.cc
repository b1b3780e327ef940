// A program that is killed while it writes a head map leaves the old map or the new one, whole.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <string>

#include "engine/kv/head_map.h"
#include "profiler/atomic_file.h"
#include "tests/support/head_maps.h"

namespace headroom::profiler {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kKills = 200;

// Writes one map and the other in turns until it is killed; tells of its first write.
[[noreturn]] void WriteForEver(const std::string& path, const std::string& first,
                               const std::string& second, int ready) {
  for (int i = 0;; ++i) {
    if (!WriteFileAtomically(path, i % 2 == 0 ? first : second).ok()) {
      ::_exit(1);
    }
    if (i == 0 && ::write(ready, "r", 1) != 1) {
      ::_exit(1);
    }
  }
}

// Starts the writer, lets it run for `delay` beyond its first write, kills it.
void KillAWriter(const std::string& path, const std::string& first, const std::string& second,
                 std::chrono::microseconds delay) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    WriteForEver(path, first, second, ready[1]);
  }
  ::close(ready[1]);
  char told = 0;
  EXPECT_EQ(::read(ready[0], &told, 1), 1) << "the writer failed";
  for (const auto end = Clock::now() + delay; Clock::now() < end;) {
  }
  ::kill(child, SIGKILL);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  ::close(ready[0]);
}

TEST(HeadMapKillTest, TwoHundredKillsLeaveTheOldMapOrTheNewOneWhole) {
  const fs::path folder = fs::path(::testing::TempDir()) / "head_map_kill_test";
  fs::remove_all(folder);
  fs::create_directory(folder);
  const std::string path = folder / "map.json";
  engine::HeadMap map = testing::MakeHeadMap(16, 8, 4);
  const std::string first = engine::WriteHeadMap(map);
  map.profile.theta_ppm = 980'000;
  const std::string second = engine::WriteHeadMap(map);
  const std::string hashes[] = {engine::ParseHeadMap(first)->hash,
                                engine::ParseHeadMap(second)->hash};
  std::minstd_rand random(7);
  int found[2] = {0, 0};
  int broken_off = 0;  // kills between the start of a write and its rename
  for (int i = 0; i < kKills; ++i) {
    KillAWriter(path, first, second, std::chrono::microseconds(random() % 3000));
    const auto read = engine::LoadHeadMap(path);
    ASSERT_TRUE(read.ok()) << read.status() << " after kill " << i;
    ASSERT_TRUE(read->hash == hashes[0] || read->hash == hashes[1]);
    ++found[read->hash == hashes[0] ? 0 : 1];
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path() != path) {
        ++broken_off;
        fs::remove(entry.path());
      }
    }
  }
  // The kills fell into the writes, and on both maps: else this shows nothing.
  EXPECT_GT(broken_off, kKills / 10);
  EXPECT_GT(found[0], 0);
  EXPECT_GT(found[1], 0);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace headroom::profiler
