// The engine thread, its inbox, and the streams through which transports read.
//
// Submit and Cancel may be called from any thread and never block on the engine. Each accepted
// request gets exactly one terminal event on its stream. Idle, the thread sleeps on a condition
// variable; it never polls.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/status.h"
#include "engine/engine.h"
#include "engine/request.h"

namespace headroom::engine {

// The events of one request, written by the engine thread and read by one reader. Adjacent kTokens
// events are merged while nobody reads, so a slow reader costs bounded memory.
class EventStream {
 public:
  // `wake` is called (engine thread) whenever events become available after the stream was empty.
  // It must not block. May be empty for readers that use Wait.
  explicit EventStream(std::function<void()> wake);
  ~EventStream();

  // The next event, or nothing when none is there yet. Reader thread.
  std::optional<RequestEvent> TryNext();
  // Blocks for the next event. Reader thread; for tools and tests.
  RequestEvent Wait();

  // Engine thread.
  void Push(RequestEvent event);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class EngineLoop {
 public:
  // References outlive the loop. The thread starts in Start().
  EngineLoop(Engine& engine, const Clock& clock, int32_t max_queued);
  ~EngineLoop();  // Stop()

  void Start();

  // Queues a request. Errors: InvalidArgument, OutOfRange, ResourceExhausted from
  // Engine::CheckFits (can never run), Unavailable when the queue is full or the loop drains.
  StatusOr<std::shared_ptr<EventStream>> Submit(std::shared_ptr<const Request> request,
                                                std::function<void()> wake);
  // Idempotent; unknown ids are ignored.
  void Cancel(RequestId id);

  // Refuses new requests from now on; those in flight go on.
  void BeginDrain();
  bool draining() const;
  // True when nothing is queued or running.
  bool idle() const;
  // Fails everything in flight with `status` and joins the thread.
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
