// Monotonic time, injected so that tests decide what time it is.
#pragma once

#include <cstdint>

namespace headroom {

class Clock {
 public:
  virtual ~Clock() = default;
  // Nanoseconds since an arbitrary fixed point; never goes back. Any thread.
  virtual int64_t NowNs() const = 0;
};

class SteadyClock final : public Clock {
 public:
  int64_t NowNs() const override;
};

}  // namespace headroom
