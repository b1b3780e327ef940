#include "base/thread_pool.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/flush_denormals.h"

namespace headroom {
namespace {

constexpr size_t kCacheLineBytes = 64;
constexpr std::chrono::microseconds kCallerSpin(20);
constexpr std::chrono::microseconds kWorkerSpin(50);

// The gate word: job number | stop bit | closed bit | how many workers are inside.
constexpr uint32_t kInsideMask = 0x3ffu;
constexpr uint32_t kClosedBit = 0x400u;
constexpr uint32_t kStopBit = 0x800u;
constexpr uint32_t kJobUnit = 0x1000u;
constexpr int kMaxThreads = static_cast<int>(kInsideMask);

constexpr uint32_t JobNumber(uint32_t gate) { return gate / kJobUnit; }
constexpr bool IsClosed(uint32_t gate) { return (gate & kClosedBit) != 0; }
constexpr bool IsStop(uint32_t gate) { return (gate & kStopBit) != 0; }

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

// Spins until `done()` or until `limit` has passed; returns the last answer of done().
template <typename Done>
bool SpinUntil(std::chrono::microseconds limit, Done done) {
  if (done()) {
    return true;
  }
  if (limit.count() == 0) {
    return false;
  }
  constexpr int kPausesPerClockRead = 16;
  const auto deadline = std::chrono::steady_clock::now() + limit;
  do {
    for (int i = 0; i < kPausesPerClockRead; ++i) {
      Pause();
      if (done()) {
        return true;
      }
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

}  // namespace

// A job is opened by one store to `gate`; a worker enters it by counting itself into that word,
// and the caller, once out of tickets, closes it and waits for those inside alone. A worker that
// was asleep or descheduled holds nobody up: it finds the gate closed and has missed nothing.
// The job's fields are written only while the gate is closed and nobody is inside.
struct ThreadPool::Impl {
  // Waiting words each have a cache line of their own. Stores before a wake are seq_cst, because
  // std::atomic's notify skips the system call when it sees nobody waiting.
  alignas(kCacheLineBytes) std::atomic<uint32_t> gate{kClosedBit};
  alignas(kCacheLineBytes) std::atomic<int64_t> ticket{0};
  alignas(kCacheLineBytes) std::atomic<uint32_t> num_finished{0};

  alignas(kCacheLineBytes) int64_t count = 0;
  Body body = nullptr;
  void* context = nullptr;

  std::chrono::microseconds caller_spin{0};
  std::chrono::microseconds worker_spin{0};
  std::vector<std::thread> workers;  // [num_threads - 1]

  void RunTickets(int thread) {
    const int64_t total = count;
    for (;;) {
      const int64_t index = ticket.fetch_add(1, std::memory_order_relaxed);
      if (index >= total) {
        return;
      }
      body(context, index, thread);
    }
  }

  // Waits for a job that is not `*last_job` and enters it; false when the pool stops. Job numbers
  // wrap: a worker that misses exactly 2^20 jobs misses one more, which costs nothing.
  bool EnterNextJob(uint32_t* last_job) {
    for (;;) {
      uint32_t seen = 0;
      const auto is_called = [&] {
        seen = gate.load(std::memory_order_acquire);
        return IsStop(seen) || (!IsClosed(seen) && JobNumber(seen) != *last_job);
      };
      if (!SpinUntil(worker_spin, is_called)) {
        gate.wait(seen, std::memory_order_acquire);
        continue;
      }
      if (IsStop(seen)) {
        return false;
      }
      if (gate.compare_exchange_strong(seen, seen + 1, std::memory_order_acq_rel)) {
        *last_job = JobNumber(seen);
        return true;
      }
    }
  }

  void WorkerMain(int thread) {
    const ScopedFlushDenormals flush;
    uint32_t job = 0;  // the first job has number 1
    while (EnterNextJob(&job)) {
      RunTickets(thread);
      num_finished.fetch_add(1, std::memory_order_seq_cst);
      num_finished.notify_one();
    }
  }

  void OpenJob() {
    ticket.store(0, std::memory_order_relaxed);
    num_finished.store(0, std::memory_order_relaxed);
    const uint32_t next_job = JobNumber(gate.load(std::memory_order_relaxed)) + 1;
    gate.store(next_job * kJobUnit, std::memory_order_seq_cst);
    gate.notify_all();
  }

  void WaitForFinished(uint32_t num_inside) {
    for (;;) {
      uint32_t seen = 0;
      const auto all_finished = [&] {
        seen = num_finished.load(std::memory_order_acquire);
        return seen == num_inside;
      };
      if (SpinUntil(caller_spin, all_finished)) {
        return;
      }
      num_finished.wait(seen, std::memory_order_acquire);
    }
  }

  void CloseJob() {
    const uint32_t gate_before = gate.fetch_or(kClosedBit, std::memory_order_acq_rel);
    WaitForFinished(gate_before & kInsideMask);
  }
};

ThreadPool::ThreadPool(int num_threads) : impl_(std::make_unique<Impl>()) {
  HEADROOM_CHECK(num_threads >= 1 && num_threads <= kMaxThreads);
  // Spinning pays only while every thread has a CPU of its own.
  if (num_threads <= AvailableCpus()) {
    impl_->caller_spin = kCallerSpin;
    impl_->worker_spin = kWorkerSpin;
  }
  impl_->workers.reserve(static_cast<size_t>(num_threads - 1));
  for (int thread = 1; thread < num_threads; ++thread) {
    impl_->workers.emplace_back([impl = impl_.get(), thread] { impl->WorkerMain(thread); });
  }
}

ThreadPool::~ThreadPool() {
  impl_->gate.store(kStopBit | kClosedBit, std::memory_order_seq_cst);
  impl_->gate.notify_all();
  for (std::thread& worker : impl_->workers) {
    worker.join();
  }
}

int ThreadPool::num_threads() const { return static_cast<int>(impl_->workers.size()) + 1; }

void ThreadPool::ParallelFor(int64_t count, Body body, void* context) {
  const ScopedFlushDenormals flush;
  if (impl_->workers.empty() || count <= 1) {
    for (int64_t index = 0; index < count; ++index) {
      body(context, index, 0);
    }
    return;
  }
  impl_->count = count;
  impl_->body = body;
  impl_->context = context;
  impl_->OpenJob();
  impl_->RunTickets(0);
  impl_->CloseJob();
}

}  // namespace headroom
