// Shows how far an evaluation is, on stderr: a bar with the time left on a terminal, a line per
// document or prompt elsewhere. SIGINT and SIGTERM end it.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "profiler/evaluation/observer.h"

namespace headroom::server {

// "1 h 5 min", "4 min 10 s", "12 s".
std::string DurationText(int64_t seconds);

class EvalProgress final : public profiler::EvalObserver {
 public:
  // From here on the two signals set a flag instead of ending the process; a second one of a kind
  // ends it. One object a process. `clock` outlives it.
  EvalProgress(const Clock& clock, bool quiet);
  ~EvalProgress() override;

  // What follows counts from 0 again: `before` of `overall` units are done.
  void BeginPart(int64_t before, int64_t overall);
  void Progress(int64_t done, int64_t total, const std::string& what) override;
  void Finished(const std::string& unit, int64_t index, int64_t count) override;
  bool Cancelled() const override;

  // Takes the bar off the terminal.
  void Clear();

 private:
  const Clock& clock_;
  const bool quiet_;
  const bool is_terminal_;
  const int64_t start_ns_;
  int64_t before_ = 0;
  int64_t overall_ = 0;  // 0: one part
  int64_t last_shown_ns_ = 0;
  bool shows_bar_ = false;
};

}  // namespace headroom::server
