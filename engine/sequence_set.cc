#include "engine/sequence_set.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace headroom::engine {
namespace {

// A preempted sequence has been admitted: its queue deadline is met.
bool WaitsForAdmission(const Sequence& sequence) {
  return sequence.state == Sequence::State::kWaiting && !sequence.preempted;
}

}  // namespace

RequestEvent MakeEvent(RequestEvent::Kind kind) {
  RequestEvent event;
  event.kind = kind;
  return event;
}

Sequence* SequenceSet::Find(RequestId id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

Sequence& SequenceSet::Add(std::unique_ptr<Sequence> sequence) {
  Sequence& added = *sequence;
  const bool is_new = by_id_.emplace(added.request->id, &added).second;
  HEADROOM_CHECK(is_new);
  waiting_.push_back(std::move(sequence));
  return added;
}

Sequence& SequenceSet::AdmitFront() {
  HEADROOM_CHECK(!waiting_.empty());
  running_.push_back(std::move(waiting_.front()));
  waiting_.pop_front();
  return *running_.back();
}

void SequenceSet::RequeueLast() {
  HEADROOM_CHECK(!running_.empty() && running_.back() != nullptr);
  waiting_.push_front(std::move(running_.back()));
  running_.pop_back();
}

void SequenceSet::Emit(const Sequence& sequence, int32_t choice, RequestEvent event) {
  event.choice = choice;
  events_.push_back({sequence.request->id, std::move(event)});
}

std::vector<EngineEvent> SequenceSet::TakeEvents() { return std::exchange(events_, {}); }

void SequenceSet::End(Sequence& sequence, Choice& choice, RequestEvent event) {
  HEADROOM_CHECK(!choice.ended && sequence.num_live >= 1);
  choice.ended = true;
  --sequence.num_live;
  if (choice.handle >= 0) {
    cache_.Close(std::exchange(choice.handle, -1));
  }
  event.usage = {.prompt_tokens = static_cast<int64_t>(sequence.request->prompt_ids.size()),
                 .completion_tokens = choice.num_generated()};
  event.receipt = sequence.receipt;
  if (sequence.num_live == 0) {
    Remove(sequence);
  }
  Emit(sequence, choice.index, std::move(event));
}

void SequenceSet::Remove(Sequence& sequence) {
  if (sequence.handle >= 0) {
    cache_.Close(std::exchange(sequence.handle, -1));
  }
  by_id_.erase(sequence.request->id);
  const auto is_it = [&](const std::unique_ptr<Sequence>& other) {
    return other.get() == &sequence;
  };
  if (sequence.state == Sequence::State::kWaiting) {
    const auto found = std::find_if(waiting_.begin(), waiting_.end(), is_it);
    ended_.push_back(std::move(*found));
    waiting_.erase(found);
  } else {
    ended_.push_back(std::move(*std::find_if(running_.begin(), running_.end(), is_it)));
  }
}

void SequenceSet::EndAll(Sequence& sequence, const RequestEvent& event) {
  for (Choice& choice : sequence.choices) {
    if (!choice.ended) {
      End(sequence, choice, event);
    }
  }
}

void SequenceSet::Fail(Sequence& sequence, const Status& status) {
  RequestEvent event = MakeEvent(RequestEvent::Kind::kFailed);
  event.status = status;
  EndAll(sequence, event);
}

void SequenceSet::FailEverything(const Status& status) {
  for (size_t i = 0; i < running_.size(); ++i) {
    if (running_[i] != nullptr) {
      Fail(*running_[i], status);
    }
  }
  while (!waiting_.empty()) {
    Fail(*waiting_.front(), status);
  }
}

void SequenceSet::ExpireDeadlines(int64_t now_ns) {
  std::vector<RequestId> expired;
  for (const auto& [id, sequence] : by_id_) {
    const Request& request = *sequence->request;
    const bool waits = WaitsForAdmission(*sequence);
    if ((request.deadline_ns != 0 && now_ns >= request.deadline_ns) ||
        (waits && request.queue_deadline_ns != 0 && now_ns >= request.queue_deadline_ns)) {
      expired.push_back(id);
    }
  }
  // By id, so that the events do not depend on a hash table's order.
  std::sort(expired.begin(), expired.end());
  for (const RequestId id : expired) {
    Sequence& sequence = *by_id_.at(id);
    const int64_t deadline_ns = sequence.request->deadline_ns;
    const bool in_queue = deadline_ns == 0 || now_ns < deadline_ns;
    RequestEvent event = MakeEvent(RequestEvent::Kind::kFailed);
    event.expired_in_queue = in_queue;
    event.status = MakeStatus(StatusCode::kDeadlineExceeded,
                              in_queue ? "the request waited longer than its queue limit"
                                       : "the request's deadline has passed");
    EndAll(sequence, event);
  }
}

int64_t SequenceSet::NextDeadlineNs() const {
  int64_t next = 0;
  const auto consider = [&](int64_t deadline_ns) {
    if (deadline_ns != 0 && (next == 0 || deadline_ns < next)) {
      next = deadline_ns;
    }
  };
  for (const auto& [id, sequence] : by_id_) {
    consider(sequence->request->deadline_ns);
    if (WaitsForAdmission(*sequence)) {
      consider(sequence->request->queue_deadline_ns);
    }
  }
  return next;
}

void SequenceSet::DropEnded() {
  std::erase(running_, nullptr);
  ended_.clear();
}

}  // namespace headroom::engine
