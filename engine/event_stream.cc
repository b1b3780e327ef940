#include "engine/event_stream.h"

#include <condition_variable>
#include <deque>
#include <iterator>
#include <mutex>
#include <utility>

#include "base/check.h"

namespace headroom::engine {

struct EventStream::Impl {
  explicit Impl(std::function<void()> the_wake) : wake(std::move(the_wake)) {}

  // True when `event` went into the last one.
  bool Merge(RequestEvent& event) {
    if (events.empty() || events.back().kind != event.kind) {
      return false;
    }
    RequestEvent& last = events.back();
    if (event.kind == RequestEvent::Kind::kTokens) {
      last.tokens.insert(last.tokens.end(), std::make_move_iterator(event.tokens.begin()),
                         std::make_move_iterator(event.tokens.end()));
      last.text += event.text;
      return true;
    }
    if (event.kind == RequestEvent::Kind::kProgress) {
      last = std::move(event);
      return true;
    }
    return false;
  }

  RequestEvent Pop() {
    RequestEvent event = std::move(events.front());
    events.pop_front();
    return event;
  }

  const std::function<void()> wake;
  std::mutex mutex;
  std::condition_variable available;
  std::deque<RequestEvent> events;
  bool ended = false;  // a terminal event was pushed
};

EventStream::EventStream(std::function<void()> wake)
    : impl_(std::make_unique<Impl>(std::move(wake))) {}

EventStream::~EventStream() = default;

std::optional<RequestEvent> EventStream::TryNext() {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  if (impl_->events.empty()) {
    return std::nullopt;
  }
  return impl_->Pop();
}

RequestEvent EventStream::Wait() {
  std::unique_lock<std::mutex> lock(impl_->mutex);
  impl_->available.wait(lock, [&] { return !impl_->events.empty(); });
  return impl_->Pop();
}

void EventStream::Push(RequestEvent event) {
  bool was_empty = false;
  {
    const std::lock_guard<std::mutex> lock(impl_->mutex);
    HEADROOM_CHECK(!impl_->ended);
    impl_->ended = IsTerminal(event.kind);
    was_empty = impl_->events.empty();
    if (!impl_->Merge(event)) {
      impl_->events.push_back(std::move(event));
    }
    // Under the lock: a reader that sees the terminal event may drop its last reference to the
    // stream at once.
    impl_->available.notify_one();
  }
  if (was_empty && impl_->wake) {
    impl_->wake();
  }
}

}  // namespace headroom::engine
