// Which requests run in the next step, and which of their rows.
//
// Scheduler::Plan is const and has no side effects: it maps a view of the queue and the running
// sequences to a StepPlan. Decode rows come first; the rest of the step's row budget goes to prompt
// chunks in order of arrival. Admission counts reservations: the prefill peak until prefill ends,
// then kept + growth. With admission_pages above num_pages they may add up to more than there is;
// the prefill peak of a request must still find its pages among those that nobody claims. First
// come, first served: a request that does not fit yet is not overtaken.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/request.h"

namespace headroom::engine {

struct SchedulerLimits {
  int32_t max_running = 256;           // choices that run at once; one request alone may have more
  int32_t max_queued = 1024;           // waiting requests; more are refused
  int32_t max_rows = 512;              // rows of one step, decode rows included
  int32_t min_chunk = 16;              // a step always offers prefill at least so many rows
  int64_t step_time_ns = 100'000'000;  // aim for a step while others decode; shrinks chunks
  // Aim for a step of prompts alone: a cancel, and a new request's admission, wait no longer.
  int64_t prompt_step_time_ns = 1'000'000'000;
  int64_t num_pages = 0;        // of the pool
  int64_t admission_pages = 0;  // that reservations may add up to; 0: num_pages
};

struct WaitingView {
  RequestId id = 0;
  int32_t num_choices = 1;
  bool preempted = false;       // comes back only within num_pages: it is not preempted again
  int64_t peak_pages = 0;       // max(prefill peak, steady)
  int64_t prefill_pages = 0;    // of them, what the prefill takes
  int64_t phase_rows_left = 0;  // rows of its first phase
  int32_t num_layers_of_phase = 0;
};

struct RunningView {
  RequestId id = 0;
  int32_t num_choices = 1;     // that have not ended; a decode row each
  int64_t reserved_pages = 0;  // peak while prefilling, then steady
  int64_t claimed_pages = 0;   // what its prefill takes, then those it holds
  bool decoding = false;
  int32_t phase = 0;                // while prefilling
  int64_t phase_rows_left = 0;      // while prefilling
  int32_t num_layers_of_phase = 0;  // cost weight of a row
};

struct SchedulerView {
  std::span<const WaitingView> waiting;  // in order of arrival
  std::span<const RunningView> running;  // in order of admission
  double row_ns = 0.0;                   // measured time of one row through all layers; 0: unknown
  int32_t num_layers = 0;
};

struct PlannedRows {
  RequestId id = 0;
  // decode: a row of each of its first so many choices; prefill: the next rows of its phase
  int32_t num_rows = 0;
};

struct StepPlan {
  std::vector<RequestId> admit;  // from the front of `waiting`
  std::vector<PlannedRows> decode;
  std::vector<PlannedRows> prefill;  // admitted ones included
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerLimits& limits) : limits_(limits) {}

  // Whenever a sequence runs or the front of the queue fits, the plan holds at least one row.
  // Oldest first everywhere; with more decoding choices than rows the youngest sit out. When
  // sequences decode, prompt chunks shrink so that the step takes about step_time_ns, and about
  // prompt_step_time_ns when none does; a row of a phase of k layers counts k / num_layers. Without
  // row_ns max_rows alone limits them. At least min(min_chunk, max_rows / 2) rows stay open to
  // prompts.
  StepPlan Plan(const SchedulerView& view) const;

 private:
  void PlanAdmission(const SchedulerView& view, StepPlan& plan) const;
  int32_t PlanDecode(const SchedulerView& view, bool has_prefill, StepPlan& plan) const;
  double PrefillCost(const SchedulerView& view, int32_t num_decode_rows) const;

  SchedulerLimits limits_;
};

}  // namespace headroom::engine
