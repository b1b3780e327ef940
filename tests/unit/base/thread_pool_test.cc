#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/flush_denormals.h"

namespace headroom {
namespace {

class ThreadPoolTest : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, ::testing::Values(1, 2, 3, 7));

TEST_P(ThreadPoolTest, RunsEveryIndexExactlyOnce) {
  ThreadPool pool(GetParam());
  ASSERT_EQ(pool.num_threads(), GetParam());
  for (const int64_t count : {0, 1, 2, 7, 1000}) {
    std::vector<std::atomic<int>> calls(1000);
    std::atomic<bool> thread_in_range{true};
    pool.ParallelFor(count, [&](int64_t index, int thread) {
      calls[static_cast<size_t>(index)].fetch_add(1);
      if (thread < 0 || thread >= GetParam()) {
        thread_in_range = false;
      }
    });
    EXPECT_TRUE(thread_in_range);
    for (int64_t index = 0; index < 1000; ++index) {
      ASSERT_EQ(calls[static_cast<size_t>(index)].load(), index < count ? 1 : 0)
          << "count " << count << " index " << index;
    }
  }
}

// Plain (non-atomic) results: under ThreadSanitizer this shows that the end of one call happens
// before the next, on every thread.
TEST_P(ThreadPoolTest, IsReusableTenThousandTimesAndPublishesPlainWrites) {
  constexpr int64_t kCount = 64;
  constexpr int64_t kCalls = 10'000;
  ThreadPool pool(GetParam());
  std::vector<int64_t> sums(kCount, 0);
  for (int64_t call = 0; call < kCalls; ++call) {
    pool.ParallelFor(kCount,
                     [&](int64_t index, int) { sums[static_cast<size_t>(index)] += call + index; });
  }
  for (int64_t index = 0; index < kCount; ++index) {
    EXPECT_EQ(sums[static_cast<size_t>(index)], kCalls * (kCalls - 1) / 2 + kCalls * index);
  }
}

TEST_P(ThreadPoolTest, NeverRunsTwoBodiesUnderOneThreadNumber) {
  ThreadPool pool(GetParam());
  std::vector<std::atomic<int>> inside(static_cast<size_t>(GetParam()));
  std::atomic<bool> overlapped{false};
  for (int call = 0; call < 200; ++call) {
    pool.ParallelFor(20, [&](int64_t, int thread) {
      if (inside[static_cast<size_t>(thread)].fetch_add(1) != 0) {
        overlapped = true;
      }
      inside[static_cast<size_t>(thread)].fetch_sub(1);
    });
  }
  EXPECT_FALSE(overlapped);
}

TEST_P(ThreadPoolTest, FlushesDenormalsInEveryBodyAndRestoresTheCaller) {
  SetFloatControl(FloatControl() & ~kFlushDenormalsBits);
  // Volatile, so that the sums happen at run time.
  volatile float denormal = std::numeric_limits<float>::denorm_min() * 100;
  ASSERT_NE(denormal + denormal, 0.0f);

  ThreadPool pool(GetParam());
  for (const int64_t count : {1, 1000}) {
    std::atomic<int64_t> num_flushed{0};
    pool.ParallelFor(count, [&](int64_t, int) {
      if (denormal + denormal == 0.0f) {
        num_flushed.fetch_add(1);
      }
    });
    EXPECT_EQ(num_flushed.load(), count);
    EXPECT_EQ(FloatControl() & kFlushDenormalsBits, 0u);
    EXPECT_NE(denormal + denormal, 0.0f);
  }
}

// Not a matter of speed: both threads must enter, or this call never returns.
TEST(ThreadPoolSharingTest, LetsAWorkerTakePart) {
  ThreadPool pool(2);
  std::atomic<int> num_arrived{0};
  std::vector<int> thread_of(2, -1);
  pool.ParallelFor(2, [&](int64_t index, int thread) {
    thread_of[static_cast<size_t>(index)] = thread;
    num_arrived.fetch_add(1);
    num_arrived.notify_all();
    while (num_arrived.load() < 2) {
      num_arrived.wait(1);
    }
  });
  EXPECT_NE(thread_of[0], thread_of[1]);
}

TEST(ThreadPoolSharingTest, StartsAndStopsWithoutWork) {
  for (int round = 0; round < 50; ++round) {
    ThreadPool pool(1 + round % 4);
  }
}

TEST(AvailableCpusTest, IsAtLeastOne) { EXPECT_GE(AvailableCpus(), 1); }

}  // namespace
}  // namespace headroom
