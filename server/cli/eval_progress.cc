#include "server/cli/eval_progress.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>

namespace headroom::server {
namespace {

constexpr int kBarWidth = 24;
constexpr size_t kWhatWidth = 46;
constexpr int64_t kRedrawNs = 100'000'000;

std::atomic<bool> interrupted{false};

void Interrupt(int) { interrupted.store(true, std::memory_order_relaxed); }

}  // namespace

std::string DurationText(int64_t seconds) {
  if (seconds >= 3600) {
    return fmt::format("{} h {} min", seconds / 3600, seconds % 3600 / 60);
  }
  if (seconds >= 60) {
    return fmt::format("{} min {} s", seconds / 60, seconds % 60);
  }
  return fmt::format("{} s", seconds);
}

EvalProgress::EvalProgress(const Clock& clock, bool quiet)
    : clock_(clock),
      quiet_(quiet),
      is_terminal_(::isatty(STDERR_FILENO) != 0),
      start_ns_(clock.NowNs()) {
  struct sigaction action {};
  action.sa_handler = Interrupt;
  action.sa_flags = SA_RESTART | SA_RESETHAND;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

EvalProgress::~EvalProgress() { Clear(); }

void EvalProgress::BeginPart(int64_t before, int64_t overall) {
  before_ = before;
  overall_ = overall;
}

void EvalProgress::Progress(int64_t done, int64_t total, const std::string& what) {
  const int64_t now = clock_.NowNs();
  done += before_;
  total = std::max(total, overall_);
  if (quiet_ || !is_terminal_ || total <= 0 ||
      (shows_bar_ && done < total && now - last_shown_ns_ < kRedrawNs)) {
    return;
  }
  last_shown_ns_ = now;
  const double share = static_cast<double>(done) / static_cast<double>(total);
  const double elapsed_s = static_cast<double>(now - start_ns_) * 1e-9;
  const auto left_s = static_cast<int64_t>(elapsed_s * (1.0 - share) / std::max(share, 1e-9) + 0.5);
  const int filled = static_cast<int>(share * kBarWidth);
  std::fprintf(stderr, "\r\033[K[%s%s] %3.0f %%, %s left  %s",
               std::string(static_cast<size_t>(filled), '#').c_str(),
               std::string(static_cast<size_t>(kBarWidth - filled), '.').c_str(), 100.0 * share,
               DurationText(left_s).c_str(), what.substr(0, kWhatWidth).c_str());
  std::fflush(stderr);
  shows_bar_ = true;
}

void EvalProgress::Finished(const std::string& unit, int64_t index, int64_t count) {
  if (!quiet_ && !is_terminal_) {
    std::fprintf(stderr, "%lld/%lld %s\n", static_cast<long long>(index),
                 static_cast<long long>(count), unit.c_str());
  }
}

bool EvalProgress::Cancelled() const { return interrupted.load(std::memory_order_relaxed); }

void EvalProgress::Clear() {
  if (shows_bar_) {
    std::fprintf(stderr, "\r\033[K");
    std::fflush(stderr);
    shows_bar_ = false;
  }
}

}  // namespace headroom::server
