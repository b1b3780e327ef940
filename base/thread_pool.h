// A persistent pool of compute threads for the inside of an op.
//
// ParallelFor hands out indices from one atomic ticket, so the split is dynamic; callers must
// make each index's result independent of which thread runs it. Waiting is a bounded spin, then a
// futex. The calling thread works too. One caller at a time (the engine thread).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>

namespace headroom {

class ThreadPool {
 public:
  // `num_threads` >= 1 counts the calling thread. Each worker, and the caller inside
  // ParallelFor, runs with denormals flushed to zero (FTZ and DAZ): a part of the numeric
  // contract of kernels/.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;

  // Calls body(index, thread) once for each index in [0, count), thread in [0, num_threads()),
  // and returns when all are done. body must not throw and must not call ParallelFor.
  using Body = void (*)(void* context, int64_t index, int thread);
  void ParallelFor(int64_t count, Body body, void* context);

  template <typename F>
  void ParallelFor(int64_t count, F&& body) {
    ParallelFor(
        count,
        [](void* context, int64_t index, int thread) {
          (*static_cast<std::remove_reference_t<F>*>(context))(index, thread);
        },
        &body);
  }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// CPUs that this process may use: affinity mask and cgroup quota, at least 1.
int AvailableCpus();

}  // namespace headroom
