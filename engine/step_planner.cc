#include "engine/step_planner.h"

#include <algorithm>

#include "base/check.h"
#include "base/log.h"

namespace headroom::engine {
namespace {

// The first choice that has to be fed what it said before a preemption; null: none.
template <typename Choices>
auto FindReplaying(const KvCache& cache, Choices& choices) -> decltype(choices.data()) {
  for (auto& choice : choices) {
    if (choice.handle >= 0 && cache.NextReplayRows(choice.handle) > 0) {
      return &choice;
    }
  }
  return nullptr;
}

}  // namespace

RunningView StepPlanner::ViewOf(const Sequence& sequence) const {
  const Choice* replaying = FindReplaying(cache_, sequence.choices);
  RunningView view = {
      .id = sequence.request->id,
      .num_choices = sequence.num_live,
      .reserved_pages = sequence.reserved_pages(),
      .decoding = sequence.state == Sequence::State::kDecode && replaying == nullptr};
  if (view.decoding) {
    // Pages that choices share count for each of them, but never more than is reserved.
    for (const int32_t handle : sequence.handles()) {
      view.claimed_pages += cache_.pages_held(handle);
    }
    view.claimed_pages = std::min(view.claimed_pages, view.reserved_pages);
  } else if (replaying != nullptr) {
    view.claimed_pages = view.reserved_pages;
    view.phase_rows_left = cache_.NextReplayRows(replaying->handle);
    view.num_layers_of_phase = shape_.kv.num_layers;
  } else {
    const auto phase = static_cast<size_t>(sequence.phase);
    view.claimed_pages = sequence.capacity.prefill_pages;
    view.phase = sequence.phase;
    view.phase_rows_left =
        static_cast<int64_t>(cache_.phase_rows(sequence.handle, sequence.phase).size()) -
        sequence.phase_rows_done;
    view.num_layers_of_phase = NumLayersOf(cache_.phases(sequence.handle)[phase]);
  }
  return view;
}

StepPlan StepPlanner::Plan(double row_ns) {
  sequences_.DropEnded();
  waiting_view_.clear();
  for (const std::unique_ptr<Sequence>& sequence : sequences_.waiting()) {
    waiting_view_.push_back(
        {.id = sequence->request->id,
         .num_choices = sequence->num_live,
         .preempted = sequence->preempted,
         .peak_pages = sequence->capacity.peak_pages,
         .prefill_pages = sequence->capacity.prefill_pages,
         .phase_rows_left = static_cast<int64_t>(sequence->request->prompt_ids.size()),
         .num_layers_of_phase = NumLayersOf(sequence->capacity.first_phase)});
  }
  running_view_.clear();
  for (const std::unique_ptr<Sequence>& sequence : sequences_.running()) {
    running_view_.push_back(ViewOf(*sequence));
  }
  return scheduler_.Plan({.waiting = waiting_view_,
                          .running = running_view_,
                          .row_ns = row_ns,
                          .num_layers = shape_.kv.num_layers});
}

void StepPlanner::Admit(const std::vector<RequestId>& ids) {
  for (const RequestId id : ids) {
    Sequence& sequence = sequences_.AdmitFront();
    const Request& request = *sequence.request;
    HEADROOM_CHECK(request.id == id);
    const auto replaying =
        std::find_if(sequence.choices.begin(), sequence.choices.end(),
                     [](const Choice& choice) { return choice.replay != nullptr; });
    sequence.handle =
        cache_.Open(request.kv, PromptInfoOf(request, shape_.token_classes),
                    replaying == sequence.choices.end() ? nullptr : replaying->replay);
    sequence.state = Sequence::State::kPrefill;
    LogDebug("event=admitted request={} peak_pages={} steady_pages={} again={}", id,
             sequence.capacity.peak_pages, sequence.capacity.SteadyPages(sequence.num_live),
             sequence.preempted);
    if (sequence.preempted || request.sampling.repetition_penalty == 1.0f) {
      continue;
    }
    for (Choice& choice : sequence.choices) {
      choice.history.AddPrompt(request.prompt_ids);
    }
  }
}

void StepPlanner::CollectRows(const StepPlan& plan, std::vector<StepRows>& rows) const {
  rows.clear();
  for (const PlannedRows& planned : plan.decode) {
    Sequence& sequence = *sequences_.Find(planned.id);
    int32_t rows_left = planned.num_rows;
    for (Choice& choice : sequence.choices) {
      if (!choice.ended && rows_left > 0) {
        rows.push_back({.sequence = &sequence, .choice = &choice, .num_rows = 1});
        --rows_left;
      }
    }
    HEADROOM_CHECK(rows_left == 0);
  }
  for (const PlannedRows& planned : plan.prefill) {
    Sequence& sequence = *sequences_.Find(planned.id);
    Choice* replaying = FindReplaying(cache_, sequence.choices);
    rows.push_back({.sequence = &sequence,
                    .choice = replaying,
                    .replays = replaying != nullptr,
                    .num_rows = planned.num_rows});
  }
}

TokenClass StepPlanner::NextClass(const Choice& choice) const {
  const auto row = static_cast<size_t>(cache_.num_decoded(choice.handle));
  if (shape_.token_classes == nullptr || row >= choice.generated.size()) {
    return TokenClass::kOther;
  }
  return (*shape_.token_classes)[static_cast<size_t>(choice.generated[row])];
}

int32_t StepPlanner::Prepare(double row_ns, std::vector<StepRows>& rows) {
  int32_t num_preempted = 0;
  int32_t num_now = 0;
  do {
    const StepPlan plan = Plan(row_ns);
    Admit(plan.admit);
    CollectRows(plan, rows);
    num_now = preemptor_.MakeRoom(rows);
    num_preempted += num_now;
    // What is left may have been planned no row: it is planned again, without those that went.
  } while (rows.empty() && num_now > 0);
  for (const StepRows& each : rows) {
    if (each.choice != nullptr) {
      cache_.PrepareDecode(each.choice->handle, NextClass(*each.choice));
    }
  }
  return num_preempted;
}

}  // namespace headroom::engine
