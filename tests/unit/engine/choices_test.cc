// Several choices of one request: one prefill, shared pages, answers of their own.
#include <gtest/gtest.h>

#include <set>

#include "engine/engine.h"
#include "tests/support/engine_fixture.h"

namespace headroom::engine {
namespace {

using testing::EngineFixture;
using testing::EngineFixtureOptions;
using testing::MakeRequest;
using testing::Outcome;
using testing::SubmitOf;
using Kind = RequestEvent::Kind;

constexpr int32_t kHeads = 3 * 2;  // layers * KV heads of the fake model

Request Sampled(RequestId id, int32_t num_prompt, int32_t max_new_tokens, int32_t num_choices) {
  Request request = MakeRequest(id, num_prompt, max_new_tokens);
  request.sampling.temperature = 1.0f;
  request.sampling.seed = 11;
  request.num_choices = num_choices;
  return request;
}

KvPolicySpec SpecOf(const std::string& policy) {
  KvPolicySpec spec = MakeRequest(0, 1, 1).kv;
  spec.policy = policy;
  if (policy == "fastkv" || policy == "streaming") {
    spec.retention_ppm = 400'000;
  }
  if (policy == "fastkv" || policy == "ragged") {
    spec.tsp_ppm = 500'000;
  }
  spec.decode = policy == "streaming" ? KvDecode::kTyped : KvDecode::kGrow;
  return spec;
}

TEST(ChoicesTest, EachGetsTheTokensThatItGetsFromAPrefillOfItsOwn) {
  for (const char* policy : {"full", "streaming", "fastkv", "ragged"}) {
    SCOPED_TRACE(policy);
    EngineFixture fixture({});
    Request request = Sampled(1, 53, 60, 4);
    request.kv = SpecOf(policy);
    fixture.Run(request);
    EXPECT_EQ(fixture.engine().stats().prompt_tokens, 53);
    std::set<std::vector<int32_t>> distinct;
    for (int32_t choice = 0; choice < 4; ++choice) {
      Request alone = request;
      alone.num_choices = 1;
      alone.sampling.choice = static_cast<uint32_t>(choice);
      EngineFixture own({});
      const Outcome& outcome = fixture.outcome(1, choice);
      EXPECT_EQ(outcome.tokens, own.Run(alone).tokens) << choice;
      EXPECT_EQ(outcome.num_terminal, 1);
      EXPECT_EQ(outcome.last.choice, choice);
      EXPECT_EQ(outcome.last.usage.prompt_tokens, 53);
      EXPECT_EQ(outcome.last.usage.completion_tokens, 60);
      distinct.insert(outcome.tokens);
    }
    EXPECT_EQ(distinct.size(), 4u);
    EXPECT_EQ(fixture.engine().stats().pages_used, 0);
  }
}

TEST(ChoicesTest, AllHaveTheSameReceiptAndTheSameKeptPositions) {
  EngineFixture fixture({});
  Request request = Sampled(1, 40, 5, 3);
  request.kv = SpecOf("ragged");
  request.trace_kv = true;
  fixture.Run(request);
  const RequestEvent& first = fixture.outcome(1, 0).last;
  ASSERT_TRUE(first.kv_trace.has_value());
  EXPECT_LT(first.receipt.entries, first.receipt.entries_full);
  for (int32_t choice = 1; choice < 3; ++choice) {
    const RequestEvent& other = fixture.outcome(1, choice).last;
    EXPECT_EQ(other.receipt.entries, first.receipt.entries);
    EXPECT_EQ(other.receipt.pages, first.receipt.pages);
    EXPECT_EQ(other.receipt.compress_ms, first.receipt.compress_ms);
    EXPECT_EQ(other.kv_trace->kept, first.kv_trace->kept);
  }
}

TEST(ChoicesTest, FullPromptPagesAreSharedAndTheLastOneIsCopied) {
  EngineFixture fixture({});
  fixture.Submit(Sampled(1, 40, 30, 3));
  // 40 slots are two full pages and half of a third.
  EXPECT_EQ(fixture.engine().stats().pages_used, 3 * kHeads);
  EXPECT_EQ(fixture.engine().stats().pages_reserved, (2 + 3 * 3) * kHeads);
  fixture.Step();
  EXPECT_EQ(fixture.engine().stats().pages_used, (2 + 3) * kHeads);
  for (int32_t token = 0; token < 8; ++token) {
    fixture.Step();
  }
  EXPECT_EQ(fixture.engine().stats().pages_used, (2 + 3 * 2) * kHeads);
  EXPECT_EQ(fixture.engine().stats().running, 1);
  EXPECT_EQ(fixture.engine().stats().running_choices, 3);
}

TEST(ChoicesTest, WhatIsReservedIsExactlyWhatTheyNeed) {
  // Prompt and answer fill 70 slots, the last of which is never written: 5 pages, 2 of them shared.
  EngineFixtureOptions options;
  options.num_pages = (2 + 4 * 3) * kHeads;
  EngineFixture fixture(options);
  const Request request = Sampled(1, 40, 30, 4);
  ASSERT_TRUE(fixture.engine().CheckFits(request).ok());
  fixture.Submit(request);
  int64_t most_used = 0;
  while (fixture.engine().HasWork()) {
    fixture.Step();
    most_used = std::max(most_used, fixture.engine().stats().pages_used);
  }
  EXPECT_EQ(most_used, options.num_pages);

  options.num_pages -= 1;
  EngineFixture smaller(options);
  EXPECT_EQ(smaller.engine().CheckFits(request).code(), StatusCode::kResourceExhausted);
}

TEST(ChoicesTest, OneThatStopsDoesNotStopTheOthers) {
  Request request = Sampled(1, 40, 30, 3);
  const std::vector<int32_t> second = [&] {
    EngineFixture fixture({});
    fixture.Run(request);
    return fixture.outcome(1, 1).tokens;
  }();
  request.stop.stop_token_ids = {second[2]};
  EngineFixture fixture({});
  fixture.Run(request);
  EXPECT_EQ(fixture.outcome(1, 1).last.finish_reason, FinishReason::kStop);
  EXPECT_LE(fixture.outcome(1, 1).tokens.size(), 3u);
  for (const int32_t choice : {0, 2}) {
    EXPECT_GT(fixture.outcome(1, choice).tokens.size(), 3u) << choice;
    EXPECT_EQ(fixture.outcome(1, choice).last.kind, Kind::kFinished);
  }
}

TEST(ChoicesTest, OneOrAllCanBeCancelledInEveryState) {
  for (const int32_t steps : {0, 1, 3, 8}) {
    SCOPED_TRACE(steps);
    EngineFixtureOptions options;
    options.limits.max_rows = 16;
    EngineFixture fixture(options);
    Request request = Sampled(1, 40, 20, 3);
    std::vector<Command> commands;
    commands.push_back(SubmitOf(request));
    if (steps == 0) {
      commands.push_back(CancelCommand{.id = 1, .choice = 1});
    }
    fixture.Step(std::move(commands));
    for (int32_t step = 1; step < steps; ++step) {
      fixture.Step();
    }
    if (steps > 0) {
      fixture.Step({CancelCommand{.id = 1, .choice = 1}, CancelCommand{.id = 1, .choice = 7}});
    }
    EXPECT_EQ(fixture.outcome(1, 1).last.kind, Kind::kCancelled);
    EXPECT_EQ(fixture.engine().stats().running_choices, 2);
    fixture.Step();
    fixture.Step({CancelCommand{.id = 1}});
    EXPECT_EQ(fixture.outcome(1, 0).last.kind, Kind::kCancelled);
    EXPECT_EQ(fixture.outcome(1, 2).last.kind, Kind::kCancelled);
    EXPECT_EQ(fixture.outcome(1, 1).num_terminal, 1);
    EXPECT_EQ(fixture.engine().stats().pages_used, 0);
    EXPECT_FALSE(fixture.engine().HasWork());
  }
}

TEST(ChoicesTest, MoreOfThemThanRowsAStepStillAllFinish) {
  EngineFixtureOptions options;
  options.limits.max_rows = 2;
  options.limits.max_running = 3;
  EngineFixture fixture(options);
  fixture.Step({SubmitOf(Sampled(1, 20, 6, 5)), SubmitOf(Sampled(2, 20, 6, 1))});
  EXPECT_EQ(fixture.engine().stats().running, 1);  // five choices alone may exceed max_running
  fixture.RunToEnd();
  for (int32_t choice = 0; choice < 5; ++choice) {
    EXPECT_EQ(fixture.outcome(1, choice).last.kind, Kind::kFinished);
  }
  EXPECT_EQ(fixture.outcome(2, 0).last.kind, Kind::kFinished);
}

TEST(ChoicesTest, NoneIsRefused) {
  EngineFixture fixture({});
  const Request request = Sampled(1, 20, 6, 0);
  EXPECT_EQ(fixture.engine().CheckFits(request).code(), StatusCode::kInvalidArgument);
  fixture.Submit(request);
  EXPECT_EQ(fixture.outcome(1, 0).last.kind, Kind::kFailed);
}

}  // namespace
}  // namespace headroom::engine
