// The events of one request, written by the engine thread and read by one reader.
//
// Adjacent kTokens events are merged while nobody reads, and of adjacent kProgress events the last
// is kept, so a slow reader costs bounded memory: its own tokens. Any thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "engine/request.h"

namespace headroom::engine {

class EventStream {
 public:
  // `wake` is called (engine thread) whenever events become available after the stream was empty.
  // It must not block. No lock is held, so the reader may already have taken the event and be gone
  // when it runs: let it own what it touches. May be empty for readers that use Wait.
  explicit EventStream(std::function<void()> wake);
  ~EventStream();

  // The next event, or nothing when none is there yet. Reader thread.
  std::optional<RequestEvent> TryNext();
  // Blocks for the next event. Reader thread; for tools and tests. Not after a terminal event.
  RequestEvent Wait();

  // Engine thread. Not after a terminal event.
  void Push(RequestEvent event);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headroom::engine
