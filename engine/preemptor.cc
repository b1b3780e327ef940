#include "engine/preemptor.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace headroom::engine {

int64_t Preemptor::ReservedPages() const {
  int64_t reserved = 0;
  for (const std::unique_ptr<Sequence>& sequence : sequences_.running()) {
    reserved += sequence->reserved_pages();
  }
  return reserved;
}

int64_t Preemptor::MostNewPages(const StepRows& rows) const {
  const Sequence& sequence = *rows.sequence;
  if (rows.choice != nullptr) {
    return cache_.MostNewPages(rows.choice->handle, rows.num_rows, /*ends_phase=*/false);
  }
  const auto phase_rows =
      static_cast<int64_t>(cache_.phase_rows(sequence.handle, sequence.phase).size());
  const bool ends_phase = sequence.phase_rows_done + rows.num_rows == phase_rows;
  return std::min(cache_.MostNewPages(sequence.handle, rows.num_rows, ends_phase),
                  sequence.reserved_pages() - cache_.pages_held(sequence.handle));
}

int32_t Preemptor::MakeRoom(std::vector<StepRows>& rows) {
  int32_t num_preempted = 0;
  while (ReservedPages() > num_pages_) {
    int64_t needed = 0;
    for (const StepRows& each : rows) {
      needed += MostNewPages(each);
    }
    const int64_t unused = cache_.pool().num_pages() - num_pages_;
    if (needed <= cache_.pool().num_free() - unused) {
      break;
    }
    Sequence& latest = *sequences_.running().back();
    std::erase_if(rows, [&](const StepRows& each) { return each.sequence == &latest; });
    Preempt(latest);
    sequences_.RequeueLast();
    ++num_preempted;
  }
  return num_preempted;
}

void Preemptor::Preempt(Sequence& sequence) {
  const int64_t free_before = cache_.pool().num_free();
  int64_t num_generated = 0;
  for (Choice& choice : sequence.choices) {
    if (choice.handle >= 0) {
      num_generated += choice.num_generated();
      choice.replay = cache_.MakeReplay(choice.handle);
      cache_.Close(std::exchange(choice.handle, -1));
    }
  }
  if (sequence.handle >= 0) {
    cache_.Close(std::exchange(sequence.handle, -1));
  }
  LogInfo("event=preempted request={} rows_read={} generated={} pages_returned={}",
          sequence.request->id, sequence.rows_done, num_generated,
          cache_.pool().num_free() - free_before);
  sequence.state = Sequence::State::kWaiting;
  sequence.preempted = true;
  sequence.phase = 0;
  sequence.phase_rows_done = 0;
  sequence.rows_done = 0;
}

}  // namespace headroom::engine
