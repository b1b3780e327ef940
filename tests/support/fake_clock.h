// A clock that moves when the test says so.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace headroom::testing {

class FakeClock final : public Clock {
 public:
  int64_t NowNs() const override {
    return now_ns_.fetch_add(tick_ns_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
  void Advance(int64_t ns) { now_ns_.fetch_add(ns, std::memory_order_relaxed); }
  // Every reading moves the clock by so much afterwards.
  void SetTick(int64_t ns) { tick_ns_.store(ns, std::memory_order_relaxed); }

 private:
  mutable std::atomic<int64_t> now_ns_{1'000'000'000};
  std::atomic<int64_t> tick_ns_{0};
};

}  // namespace headroom::testing
