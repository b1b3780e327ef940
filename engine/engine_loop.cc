#include "engine/engine_loop.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/check.h"

namespace headroom::engine {
namespace {

// An idle loop ticks so often, for the heartbeat.
constexpr std::chrono::seconds kIdleTick{1};

}  // namespace

struct EngineLoop::Impl {
  Impl(Engine& the_engine, const Clock& the_clock, int32_t the_max_queued)
      : engine(the_engine), clock(the_clock), max_queued(the_max_queued) {
    HEADROOM_CHECK(max_queued >= 1);
    snapshot = engine.stats();
  }

  struct InFlight {
    std::vector<std::shared_ptr<EventStream>> streams;  // by choice; null: it has ended
    size_t num_open = 0;    // choices that have not ended
    bool cancelled = false;  // a cancellation is in the inbox or was taken
  };
  using Observer = std::function<void(const std::vector<EngineEvent>&, int64_t step_ns)>;

  Engine& engine;  // the engine thread's, but for CheckFits
  const Clock& clock;
  const int32_t max_queued;
  std::thread thread;
  std::atomic<int64_t> heartbeat_ns{0};

  mutable std::mutex mutex;
  std::condition_variable wake;
  // All below: under `mutex`.
  std::vector<Command> inbox;
  int64_t num_submitted = 0;  // SubmitCommands in the inbox
  int64_t num_waiting = 0;    // in the engine, after its last step; those taken meanwhile included
  std::unordered_map<RequestId, InFlight> in_flight;  // accepted, no terminal event yet
  bool draining = false;
  bool stopping = false;
  bool stopped = false;  // Stop has taken over
  Status stop_status;
  EngineStats snapshot;
  std::shared_ptr<const Observer> observer;

  void Run();
  // Waits until there is something to do, then empties the inbox. False: stop.
  bool TakeCommands(std::vector<Command>& commands);
  void Step(std::vector<Command> commands);
  void Deliver(std::vector<EngineEvent>& events);
  // Fails what is left. Engine thread, or the caller of Stop where no thread was started.
  void FailAll();
};

void EngineLoop::Impl::Run() {
  std::vector<Command> commands;
  while (TakeCommands(commands)) {
    Step(std::move(commands));
    commands.clear();
  }
  FailAll();
}

bool EngineLoop::Impl::TakeCommands(std::vector<Command>& commands) {
  // HasWork is the engine thread's own state, so it is read before the wait; only a command can
  // change it meanwhile.
  const bool has_work = engine.HasWork();
  std::unique_lock<std::mutex> lock(mutex);
  heartbeat_ns.store(clock.NowNs(), std::memory_order_relaxed);
  while (!has_work && inbox.empty() && !stopping) {
    wake.wait_for(lock, kIdleTick);
    heartbeat_ns.store(clock.NowNs(), std::memory_order_relaxed);
  }
  if (stopping) {
    return false;
  }
  commands.swap(inbox);
  num_waiting += num_submitted;
  num_submitted = 0;
  return true;
}

void EngineLoop::Impl::Step(std::vector<Command> commands) {
  const int64_t start_ns = clock.NowNs();
  std::vector<EngineEvent> events = engine.Step(start_ns, std::move(commands));
  const int64_t step_ns = clock.NowNs() - start_ns;
  std::shared_ptr<const Observer> watching;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    snapshot = engine.stats();
    num_waiting = snapshot.waiting;
    watching = observer;
  }
  // Before the readers: who sees a terminal event also sees it counted.
  if (watching != nullptr) {
    (*watching)(events, step_ns);
  }
  Deliver(events);
}

void EngineLoop::Impl::Deliver(std::vector<EngineEvent>& events) {
  for (EngineEvent& event : events) {
    std::shared_ptr<EventStream> stream;
    {
      const std::lock_guard<std::mutex> lock(mutex);
      const auto found = in_flight.find(event.id);
      HEADROOM_CHECK(found != in_flight.end());
      InFlight& request = found->second;
      std::shared_ptr<EventStream>& of_choice =
          request.streams[static_cast<size_t>(event.event.choice)];
      HEADROOM_CHECK(of_choice != nullptr);
      stream = of_choice;
      if (IsTerminal(event.event.kind)) {
        of_choice.reset();
        if (--request.num_open == 0) {
          in_flight.erase(found);
        }
      }
    }
    stream->Push(std::move(event.event));
  }
}

void EngineLoop::Impl::FailAll() {
  std::vector<Command> commands;
  Status status;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    commands.swap(inbox);
    num_submitted = 0;
    status = stop_status;
  }
  // What was accepted in the last moment is submitted first, so that it fails like the rest.
  commands.push_back(FailAllCommand{status});
  Step(std::move(commands));
}

EngineLoop::EngineLoop(Engine& engine, const Clock& clock, int32_t max_queued)
    : impl_(std::make_unique<Impl>(engine, clock, max_queued)) {}

EngineLoop::~EngineLoop() { Stop(Unavailable("the engine was shut down")); }

void EngineLoop::Start() {
  HEADROOM_CHECK(!impl_->thread.joinable());
  impl_->heartbeat_ns.store(impl_->clock.NowNs(), std::memory_order_relaxed);
  impl_->thread = std::thread([impl = impl_.get()] { impl->Run(); });
}

StatusOr<std::vector<std::shared_ptr<EventStream>>> EngineLoop::Submit(
    std::shared_ptr<const Request> request, std::function<void()> wake) {
  HEADROOM_CHECK(request != nullptr);
  HEADROOM_RETURN_IF_ERROR(impl_->engine.CheckFits(*request));
  const RequestId id = request->id;
  Impl::InFlight accepted;
  for (int32_t choice = 0; choice < request->num_choices; ++choice) {
    accepted.streams.push_back(std::make_shared<EventStream>(wake));
  }
  accepted.num_open = accepted.streams.size();
  std::vector<std::shared_ptr<EventStream>> streams = accepted.streams;
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  if (impl_->draining || impl_->stopping) {
    return Unavailable("the server is draining and takes no new requests");
  }
  const int64_t queued = impl_->num_waiting + impl_->num_submitted;
  if (queued >= impl_->max_queued) {
    return Unavailable("the queue is full: {} requests wait, {} may", queued, impl_->max_queued);
  }
  const bool is_new = impl_->in_flight.emplace(id, std::move(accepted)).second;
  HEADROOM_CHECK(is_new);
  impl_->inbox.push_back(
      SubmitCommand{.request = std::move(request), .arrival_ns = impl_->clock.NowNs()});
  ++impl_->num_submitted;
  impl_->wake.notify_one();
  return streams;
}

void EngineLoop::Cancel(RequestId id) {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  const auto found = impl_->in_flight.find(id);
  if (found == impl_->in_flight.end() || found->second.cancelled) {
    return;
  }
  found->second.cancelled = true;
  impl_->inbox.push_back(CancelCommand{id});
  impl_->wake.notify_one();
}

void EngineLoop::BeginDrain() {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  impl_->draining = true;
}

bool EngineLoop::draining() const {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  return impl_->draining;
}

bool EngineLoop::idle() const {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  return impl_->in_flight.empty();
}

void EngineLoop::Stop(const Status& status) {
  HEADROOM_CHECK(!status.ok());
  {
    const std::lock_guard<std::mutex> lock(impl_->mutex);
    if (impl_->stopped) {
      return;
    }
    impl_->stopped = true;
    impl_->stopping = true;
    impl_->stop_status = status;
    impl_->wake.notify_one();
  }
  if (impl_->thread.joinable()) {
    impl_->thread.join();
  } else {
    impl_->FailAll();
  }
}

EngineStats EngineLoop::stats() const {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  return impl_->snapshot;
}

int64_t EngineLoop::heartbeat_ns() const {
  return impl_->heartbeat_ns.load(std::memory_order_relaxed);
}

void EngineLoop::SetObserver(
    std::function<void(const std::vector<EngineEvent>&, int64_t step_ns)> observer) {
  auto shared = observer ? std::make_shared<const Impl::Observer>(std::move(observer)) : nullptr;
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  impl_->observer = std::move(shared);
}

}  // namespace headroom::engine
