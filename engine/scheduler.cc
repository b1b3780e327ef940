#include "engine/scheduler.h"

#include <algorithm>
#include <limits>

namespace headroom::engine {
namespace {

// Fills the step with prompt rows, oldest sequence first.
class ChunkFiller {
 public:
  // `cost` is in row-layers.
  ChunkFiller(int32_t rows, double cost, int32_t min_rows, StepPlan& plan)
      : rows_(rows), cost_(cost), min_rows_(min_rows), plan_(plan) {}

  void Add(RequestId id, int64_t rows_left, int32_t num_layers) {
    const double row_cost = std::max(1, num_layers);
    int64_t rows = std::min<int64_t>(rows_left, rows_);
    const auto affordable = static_cast<int64_t>(std::clamp(cost_ / row_cost, 0.0, 1e9));
    rows = std::min(rows, std::max<int64_t>(affordable, min_rows_));
    if (rows <= 0) {
      return;
    }
    plan_.prefill.push_back({.id = id, .num_rows = static_cast<int32_t>(rows)});
    rows_ -= static_cast<int32_t>(rows);
    min_rows_ = std::max(0, min_rows_ - static_cast<int32_t>(rows));
    cost_ -= static_cast<double>(rows) * row_cost;
    // First come, first served: a chunk that was cut short ends the step.
    if (rows < rows_left) {
      rows_ = 0;
    }
  }

 private:
  int32_t rows_;
  double cost_;
  int32_t min_rows_;  // offered whatever they cost
  StepPlan& plan_;
};

}  // namespace

void Scheduler::PlanAdmission(const SchedulerView& view, StepPlan& plan) const {
  int64_t reserved = 0;
  int64_t claimed = 0;
  int64_t num_running = 0;
  for (const RunningView& running : view.running) {
    reserved += running.reserved_pages;
    claimed += running.claimed_pages;
    num_running += running.num_choices;
  }
  const int64_t admission_pages = std::max(limits_.admission_pages, limits_.num_pages);
  for (const WaitingView& waiting : view.waiting) {
    const bool too_many =
        num_running > 0 && num_running + waiting.num_choices > limits_.max_running;
    const int64_t most_reserved = waiting.preempted ? limits_.num_pages : admission_pages;
    if (too_many || waiting.peak_pages > most_reserved - reserved ||
        waiting.prefill_pages > limits_.num_pages - claimed) {
      break;
    }
    plan.admit.push_back(waiting.id);
    reserved += waiting.peak_pages;
    claimed += waiting.prefill_pages;
    num_running += waiting.num_choices;
  }
}

int32_t Scheduler::PlanDecode(const SchedulerView& view, bool has_prefill, StepPlan& plan) const {
  const int32_t open_to_prompts =
      has_prefill ? std::min(limits_.min_chunk, limits_.max_rows / 2) : 0;
  const int32_t max_decode = limits_.max_rows - open_to_prompts;
  int32_t num_rows = 0;
  for (const RunningView& running : view.running) {
    const int32_t rows = std::min(running.num_choices, max_decode - num_rows);
    if (running.decoding && rows > 0) {
      plan.decode.push_back({.id = running.id, .num_rows = rows});
      num_rows += rows;
    }
  }
  return num_rows;
}

// Row-layers that prompts may spend in this step.
double Scheduler::PrefillCost(const SchedulerView& view, int32_t num_decode_rows) const {
  if (view.row_ns <= 0.0) {
    return std::numeric_limits<double>::infinity();
  }
  const int64_t aim_ns = num_decode_rows == 0 ? limits_.prompt_step_time_ns : limits_.step_time_ns;
  const double rows = static_cast<double>(aim_ns) / view.row_ns - num_decode_rows;
  return rows * view.num_layers;
}

StepPlan Scheduler::Plan(const SchedulerView& view) const {
  StepPlan plan;
  PlanAdmission(view, plan);
  const bool has_prefill =
      !plan.admit.empty() || std::any_of(view.running.begin(), view.running.end(),
                                         [](const RunningView& r) { return !r.decoding; });
  const int32_t num_decode_rows = PlanDecode(view, has_prefill, plan);
  ChunkFiller filler(limits_.max_rows - num_decode_rows, PrefillCost(view, num_decode_rows),
                     limits_.min_chunk, plan);
  for (const RunningView& running : view.running) {
    if (!running.decoding) {
      filler.Add(running.id, running.phase_rows_left, running.num_layers_of_phase);
    }
  }
  for (size_t i = 0; i < plan.admit.size(); ++i) {
    filler.Add(view.waiting[i].id, view.waiting[i].phase_rows_left,
               view.waiting[i].num_layers_of_phase);
  }
  return plan;
}

}  // namespace headroom::engine
