// The requests in flight: who waits, who runs, how they end, and what they are told.
//
// A request is in exactly one of the two lists, and found by its id, until its last choice has had
// its terminal event. Engine thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "engine/engine_event.h"
#include "engine/kv/kv_cache.h"
#include "engine/sequence.h"

namespace headroom::engine {

class SequenceSet {
 public:
  // `cache` outlives the set and holds the pages of what runs.
  explicit SequenceSet(KvCache& cache) : cache_(cache) {}

  // In order of arrival.
  const std::deque<std::unique_ptr<Sequence>>& waiting() const { return waiting_; }
  // In order of admission. Null: ended since the last DropEnded.
  const std::vector<std::unique_ptr<Sequence>>& running() const { return running_; }
  bool empty() const { return by_id_.empty(); }
  int64_t num_open() const { return static_cast<int64_t>(by_id_.size()); }
  // Null when no such request is in flight.
  Sequence* Find(RequestId id) const;

  // Queues a request with a new id.
  Sequence& Add(std::unique_ptr<Sequence> sequence);
  // Moves the front of the queue to the end of those that run.
  Sequence& AdmitFront();

  // Puts the last of those that run back to the front of the queue.
  void RequeueLast();

  // Ends one choice, or all that are left: their pages go back, then the terminal event is emitted.
  // A sequence without live choices is gone from the lists; its memory stays until DropEnded.
  void End(Sequence& sequence, Choice& choice, RequestEvent event);
  void EndAll(Sequence& sequence, const RequestEvent& event);
  void Fail(Sequence& sequence, const Status& status);
  void FailEverything(const Status& status);
  // Fails requests whose deadline is not after `now_ns`.
  void ExpireDeadlines(int64_t now_ns);
  // The next instant at which a deadline expires; 0: none.
  int64_t NextDeadlineNs() const;

  void Emit(const Sequence& sequence, int32_t choice, RequestEvent event);
  // The events since the last call.
  std::vector<EngineEvent> TakeEvents();

  void DropEnded();

 private:
  void Remove(Sequence& sequence);

  KvCache& cache_;
  std::deque<std::unique_ptr<Sequence>> waiting_;
  std::vector<std::unique_ptr<Sequence>> running_;
  std::unordered_map<RequestId, Sequence*> by_id_;
  std::vector<std::unique_ptr<Sequence>> ended_;
  std::vector<EngineEvent> events_;
};

RequestEvent MakeEvent(RequestEvent::Kind kind);

}  // namespace headroom::engine
