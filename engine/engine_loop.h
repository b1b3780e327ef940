// The engine thread and its inbox; transports read through event streams.
//
// Submit and Cancel may be called from any thread and never block on the engine. Each choice of an
// accepted request gets exactly one terminal event on its stream. Idle, the thread sleeps on a condition
// variable; it never polls. The inbox is bounded: max_queued submissions, one cancellation for each
// request in flight.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "engine/engine.h"
#include "engine/event_stream.h"
#include "engine/request.h"

namespace headroom::engine {

class EngineLoop {
 public:
  // References outlive the loop. The thread starts in Start(). At most `max_queued` (>= 1) requests
  // wait for admission.
  EngineLoop(Engine& engine, const Clock& clock, int32_t max_queued);
  ~EngineLoop();  // Stop()

  void Start();

  // Queues a request; a stream per choice, `wake` is theirs. Errors: InvalidArgument, OutOfRange,
  // ResourceExhausted from Engine::CheckFits (can never run), Unavailable when the queue is full or
  // the loop drains.
  StatusOr<std::vector<std::shared_ptr<EventStream>>> Submit(
      std::shared_ptr<const Request> request, std::function<void()> wake);
  // All choices of the request. Idempotent; unknown ids are ignored.
  void Cancel(RequestId id);

  // Refuses new requests from now on; those in flight go on.
  void BeginDrain();
  bool draining() const;
  // True when nothing is queued or running.
  bool idle() const;
  // Fails everything in flight with `status` (not OK) and joins the thread; every stream has its
  // terminal event when it returns. Later submissions are refused. Idempotent.
  void Stop(const Status& status);

  // After each step; any thread.
  EngineStats stats() const;
  // Clock time of the last turn of the loop (it ticks when idle too, at least every second).
  int64_t heartbeat_ns() const;
  // Called on the engine thread after each step with the step's duration and events, for metrics.
  void SetObserver(std::function<void(const std::vector<EngineEvent>&, int64_t step_ns)> observer);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headroom::engine
