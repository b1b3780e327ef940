// Makes room when more was promised than there is: puts the latest requests back into the queue.
//
// Only reservations that add up to more than the pool can need it, so the oldest request is never
// preempted: alone it fits. One that comes back is admitted only while all reservations fit the
// pool, so that it is not preempted again. Engine thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/batch_builder.h"
#include "engine/kv/kv_cache.h"
#include "engine/sequence_set.h"

namespace headroom::engine {

class Preemptor {
 public:
  // The references outlive the object; the pool has `num_pages`.
  Preemptor(KvCache& cache, SequenceSet& sequences, int64_t num_pages)
      : cache_(cache), sequences_(sequences), num_pages_(num_pages) {}

  // Preempts until the pages that `rows` may take are free or all reservations fit the pool; takes
  // the rows of those that go out of `rows`. Returns how many requests went.
  int32_t MakeRoom(std::vector<StepRows>& rows);

 private:
  int64_t ReservedPages() const;
  int64_t MostNewPages(const StepRows& rows) const;
  // Returns its pages and remembers what to replay.
  void Preempt(Sequence& sequence);

  KvCache& cache_;
  SequenceSet& sequences_;
  const int64_t num_pages_;
};

}  // namespace headroom::engine
