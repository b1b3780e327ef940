// How a long evaluation tells where it stands, and how it is broken off.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace headroom::profiler {

class EvalObserver {
 public:
  virtual ~EvalObserver() = default;

  // `done` of `total` units of work, about equal in time; `what` says what was just finished.
  virtual void Progress(int64_t done, int64_t total, const std::string& what) = 0;
  // Whether a document or prompt ended with this progress: where no bar can be drawn, a line.
  virtual void Finished(const std::string& unit, int64_t index, int64_t count) = 0;
  // Asked between forward passes; true ends the evaluation with kCancelled.
  virtual bool Cancelled() const = 0;
};

// What a cancelled evaluation returns.
inline Status CancelledStatus() {
  return MakeStatus(StatusCode::kCancelled, "interrupted; nothing was written");
}

}  // namespace headroom::profiler
