// What the next step runs: asks the scheduler, admits, preempts where pages are short, and prepares
// the sequences of the cache. Engine thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/batch_builder.h"
#include "engine/capacity.h"
#include "engine/kv/kv_cache.h"
#include "engine/preemptor.h"
#include "engine/scheduler.h"
#include "engine/sequence_set.h"

namespace headroom::engine {

class StepPlanner {
 public:
  // The references outlive the planner; `limits` has the page numbers set.
  StepPlanner(const SchedulerLimits& limits, const EngineShape& shape, KvCache& cache,
              SequenceSet& sequences)
      : limits_(limits),
        shape_(shape),
        cache_(cache),
        sequences_(sequences),
        scheduler_(limits),
        preemptor_(cache, sequences, limits.num_pages) {}

  // Sets `rows` to what the step runs; their pages are there and their heads have evicted what is
  // due. `row_ns` as in SchedulerView. Returns how many requests were preempted.
  int32_t Prepare(double row_ns, std::vector<StepRows>& rows);

 private:
  StepPlan Plan(double row_ns);
  RunningView ViewOf(const Sequence& sequence) const;
  void Admit(const std::vector<RequestId>& ids);
  // What the token is that the choice feeds next.
  TokenClass NextClass(const Choice& choice) const;
  void CollectRows(const StepPlan& plan, std::vector<StepRows>& rows) const;

  const SchedulerLimits limits_;
  const EngineShape& shape_;
  KvCache& cache_;
  SequenceSet& sequences_;
  const Scheduler scheduler_;
  Preemptor preemptor_;
  std::vector<WaitingView> waiting_view_;
  std::vector<RunningView> running_view_;
};

}  // namespace headroom::engine
