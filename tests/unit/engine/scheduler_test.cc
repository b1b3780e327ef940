#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include "base/philox.h"

namespace headroom::engine {
namespace {

SchedulerLimits Limits() {
  SchedulerLimits limits;
  limits.num_pages = 100;
  limits.max_rows = 64;
  limits.min_chunk = 16;
  limits.max_running = 8;
  return limits;
}

RunningView Decoding(RequestId id, int64_t pages = 1) {
  RunningView view;
  view.id = id;
  view.reserved_pages = pages;
  view.decoding = true;
  return view;
}

RunningView Prefilling(RequestId id, int64_t rows_left, int32_t num_layers = 10) {
  RunningView view;
  view.id = id;
  view.reserved_pages = 1;
  view.phase_rows_left = rows_left;
  view.num_layers_of_phase = num_layers;
  return view;
}

WaitingView Waiting(RequestId id, int64_t pages, int64_t rows = 10) {
  return {.id = id, .peak_pages = pages, .phase_rows_left = rows, .num_layers_of_phase = 10};
}

std::vector<RequestId> Ids(const std::vector<PlannedRows>& rows) {
  std::vector<RequestId> ids;
  for (const PlannedRows& row : rows) {
    ids.push_back(row.id);
  }
  return ids;
}

struct View {
  std::vector<WaitingView> waiting = {};
  std::vector<RunningView> running = {};
  double row_ns = 0.0;

  StepPlan Plan(const SchedulerLimits& limits) const {
    return Scheduler(limits).Plan(
        {.waiting = waiting, .running = running, .row_ns = row_ns, .num_layers = 10});
  }
};

TEST(SchedulerTest, AnEmptyViewPlansNothing) {
  const StepPlan plan = View().Plan(Limits());
  EXPECT_TRUE(plan.admit.empty() && plan.decode.empty() && plan.prefill.empty());
}

TEST(SchedulerTest, AdmitsWhileReservationsFit) {
  const View view = {.waiting = {Waiting(2, 40), Waiting(3, 40), Waiting(4, 40)},
                     .running = {Decoding(1, 20)}};
  EXPECT_EQ(view.Plan(Limits()).admit, (std::vector<RequestId>{2, 3}));
}

TEST(SchedulerTest, ARequestThatDoesNotFitIsNotOvertaken) {
  const View view = {.waiting = {Waiting(2, 90), Waiting(3, 1)}, .running = {Decoding(1, 20)}};
  EXPECT_TRUE(view.Plan(Limits()).admit.empty());
}

TEST(SchedulerTest, AdmitsNoMoreThanMayRun) {
  SchedulerLimits limits = Limits();
  limits.max_running = 2;
  const View view = {.waiting = {Waiting(2, 1), Waiting(3, 1)}, .running = {Decoding(1)}};
  EXPECT_EQ(view.Plan(limits).admit, (std::vector<RequestId>{2}));
}

TEST(SchedulerTest, DecodeRowsComeFirstAndPromptsShareTheRest) {
  const View view = {.waiting = {Waiting(5, 1, 9)},
                     .running = {Decoding(1), Prefilling(2, 30), Decoding(3), Prefilling(4, 20)}};
  const StepPlan plan = view.Plan(Limits());
  EXPECT_EQ(Ids(plan.decode), (std::vector<RequestId>{1, 3}));
  ASSERT_EQ(Ids(plan.prefill), (std::vector<RequestId>{2, 4, 5}));
  EXPECT_EQ(plan.prefill[0].num_rows, 30);
  EXPECT_EQ(plan.prefill[1].num_rows, 20);
  EXPECT_EQ(plan.prefill[2].num_rows, 9);
}

TEST(SchedulerTest, RowsOfAStepAreCapped) {
  const View view = {.running = {Decoding(1), Prefilling(2, 50), Prefilling(3, 50)}};
  const StepPlan plan = view.Plan(Limits());
  ASSERT_EQ(plan.prefill.size(), 2u);
  EXPECT_EQ(plan.prefill[0].num_rows, 50);
  EXPECT_EQ(plan.prefill[1].num_rows, 13);  // 64 - 1 - 50
}

TEST(SchedulerTest, ChunksShrinkToTheStepTimeWhileOthersDecode) {
  SchedulerLimits limits = Limits();
  limits.step_time_ns = 1000;
  limits.prompt_step_time_ns = 1250;
  View view = {.running = {Decoding(1), Prefilling(2, 1000)}, .row_ns = 25.0};
  EXPECT_EQ(view.Plan(limits).prefill[0].num_rows, 39);  // 1000 / 25 - 1
  view.running = {Prefilling(2, 1000)};                  // none decodes
  EXPECT_EQ(view.Plan(limits).prefill[0].num_rows, 50);  // 1250 / 25
  limits.prompt_step_time_ns = 1'000'000;
  EXPECT_EQ(view.Plan(limits).prefill[0].num_rows, 64);  // max_rows
  view = {.running = {Decoding(1), Prefilling(2, 1000)}, .row_ns = 0.0};  // not measured
  EXPECT_EQ(view.Plan(limits).prefill[0].num_rows, 63);
}

TEST(SchedulerTest, RowsOfAShorterPhaseCostLess) {
  SchedulerLimits limits = Limits();
  limits.step_time_ns = 1000;
  const View view = {.running = {Decoding(1), Prefilling(2, 1000, 5)}, .row_ns = 50.0};
  EXPECT_EQ(view.Plan(limits).prefill[0].num_rows, 38);  // twice 1000 / 50 - 1
}

TEST(SchedulerTest, PrefillGetsItsLeastChunkHoweverSlowARowIs) {
  SchedulerLimits limits = Limits();
  limits.step_time_ns = 10;
  const View view = {.running = {Decoding(1), Prefilling(2, 10), Prefilling(3, 100)},
                     .row_ns = 1e6};
  const StepPlan plan = view.Plan(limits);
  ASSERT_EQ(plan.prefill.size(), 2u);
  EXPECT_EQ(plan.prefill[0].num_rows, 10);
  EXPECT_EQ(plan.prefill[1].num_rows, 6);  // together min_chunk
}

TEST(SchedulerTest, ManyDecodingSequencesLeaveRoomForPrompts) {
  SchedulerLimits limits = Limits();
  limits.max_running = 200;
  View view;
  for (RequestId id = 1; id <= 100; ++id) {
    view.running.push_back(Decoding(id));
  }
  EXPECT_EQ(view.Plan(limits).decode.size(), 64u);
  view.running.push_back(Prefilling(101, 100));
  const StepPlan plan = view.Plan(limits);
  EXPECT_EQ(plan.decode.size(), 48u);
  EXPECT_EQ(plan.decode.front().id, 1u);  // the oldest
  EXPECT_EQ(plan.prefill[0].num_rows, 16);
}

TEST(SchedulerTest, APlanNeverBreaksItsLimitsAndAlwaysMakesProgress) {
  const Philox rng(11);
  uint64_t counter = 0;
  const auto draw = [&](uint32_t bound) { return rng.Block(counter++)[0] % bound; };
  for (int trial = 0; trial < 20'000; ++trial) {
    SchedulerLimits limits;
    limits.max_rows = 1 + static_cast<int32_t>(draw(40));
    limits.min_chunk = 1 + static_cast<int32_t>(draw(20));
    limits.max_running = 1 + static_cast<int32_t>(draw(10));
    limits.num_pages = 1 + draw(60);
    limits.step_time_ns = draw(1000);
    View view = {.row_ns = draw(2) == 0 ? 0.0 : draw(500) / 7.0};
    int64_t reserved = 0;
    for (uint32_t i = draw(8); i > 0; --i) {
      RunningView running = draw(2) == 0 ? Decoding(i + 100) : Prefilling(i + 100, 1 + draw(99));
      running.reserved_pages = draw(10);
      running.num_layers_of_phase = 1 + static_cast<int32_t>(draw(10));
      if (reserved + running.reserved_pages > limits.num_pages ||
          static_cast<int32_t>(view.running.size()) >= limits.max_running) {
        break;
      }
      reserved += running.reserved_pages;
      view.running.push_back(running);
    }
    for (uint32_t i = draw(8); i > 0; --i) {
      view.waiting.push_back(
          Waiting(i, 1 + draw(static_cast<uint32_t>(limits.num_pages)), 1 + draw(99)));
    }
    const StepPlan plan = view.Plan(limits);
    ASSERT_LE(plan.admit.size() + view.running.size(), static_cast<size_t>(limits.max_running));
    for (size_t i = 0; i < plan.admit.size(); ++i) {
      ASSERT_EQ(plan.admit[i], view.waiting[i].id);
      reserved += view.waiting[i].peak_pages;
    }
    ASSERT_LE(reserved, limits.num_pages);
    int64_t rows = static_cast<int64_t>(plan.decode.size());
    for (const PlannedRows& planned : plan.prefill) {
      ASSERT_GE(planned.num_rows, 1);
      rows += planned.num_rows;
    }
    ASSERT_LE(rows, limits.max_rows);
    ASSERT_TRUE(rows >= 1 || (view.running.empty() && view.waiting.empty())) << "trial " << trial;
  }
}

}  // namespace
}  // namespace headroom::engine
