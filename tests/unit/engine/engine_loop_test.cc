#include "engine/engine_loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/support/engine_fixture.h"

namespace headroom::engine {
namespace {

using testing::AddToOutcome;
using testing::EngineFixture;
using testing::EngineFixtureOptions;
using testing::FakeModel;
using testing::MakeRequest;
using testing::Outcome;
using Kind = RequestEvent::Kind;

std::shared_ptr<const Request> Share(const Request& request) {
  return std::make_shared<const Request>(request);
}

// The stream of a request with one choice.
StatusOr<std::shared_ptr<EventStream>> SubmitOne(EngineLoop& loop,
                                                 std::shared_ptr<const Request> request,
                                                 std::function<void()> wake) {
  HEADROOM_ASSIGN_OR_RETURN(auto streams, loop.Submit(std::move(request), std::move(wake)));
  return streams.front();
}

Outcome ReadAll(EventStream& stream) {
  Outcome outcome;
  while (outcome.num_terminal == 0) {
    AddToOutcome(stream.Wait(), outcome);
  }
  return outcome;
}

// An engine with its loop; the loop starts when the test says so.
struct Loop {
  explicit Loop(int32_t max_queued = 100, const EngineFixtureOptions& options = {})
      : fixture(options), loop(fixture.engine(), fixture.clock(), max_queued) {}
  EngineFixture fixture;
  EngineLoop loop;
};

TEST(EventStreamTest, TokensMergeWhileNobodyReads) {
  EventStream stream({});
  for (int32_t i = 0; i < 3; ++i) {
    RequestEvent event;
    event.kind = Kind::kProgress;
    event.rows_done = i;
    stream.Push(event);
  }
  for (int32_t i = 0; i < 3; ++i) {
    RequestEvent event;
    event.tokens.push_back({.token = i, .logprob = 0.0f, .top = {}});
    event.text = std::string(1, static_cast<char>('a' + i));
    stream.Push(event);
  }
  const RequestEvent progress = stream.Wait();
  EXPECT_EQ(progress.kind, Kind::kProgress);
  EXPECT_EQ(progress.rows_done, 2);
  const std::optional<RequestEvent> tokens = stream.TryNext();
  ASSERT_TRUE(tokens.has_value());
  EXPECT_EQ(tokens->text, "abc");
  EXPECT_EQ(tokens->tokens.size(), 3u);
  EXPECT_FALSE(stream.TryNext().has_value());
}

TEST(EventStreamTest, WakesOnlyWhenItWasEmpty) {
  int wakes = 0;
  EventStream stream([&] { ++wakes; });
  stream.Push(RequestEvent());
  stream.Push(RequestEvent());
  EXPECT_EQ(wakes, 1);
  while (stream.TryNext()) {
  }
  stream.Push(RequestEvent());
  EXPECT_EQ(wakes, 2);
}

TEST(EngineLoopTest, EveryChoiceHasItsOwnStream) {
  Loop test;
  Request request = MakeRequest(1, 30, 10);
  request.num_choices = 3;
  request.sampling.temperature = 1.0f;
  const auto streams = test.loop.Submit(Share(request), {});
  ASSERT_TRUE(streams.ok());
  ASSERT_EQ(streams->size(), 3u);
  test.loop.Start();
  for (int32_t choice = 0; choice < 3; ++choice) {
    const Outcome outcome = ReadAll(*(*streams)[static_cast<size_t>(choice)]);
    EXPECT_EQ(outcome.last.kind, Kind::kFinished);
    EXPECT_EQ(outcome.last.choice, choice);
    EXPECT_EQ(outcome.tokens.size(), 10u);
  }
  EXPECT_TRUE(test.loop.idle());
}

TEST(EngineLoopTest, ARequestGetsItsTokensAndOneTerminalEvent) {
  Loop test;
  test.loop.Start();
  const Request request = MakeRequest(1, 30, 10);
  const auto stream = SubmitOne(test.loop, Share(request), {});
  ASSERT_TRUE(stream.ok());
  const Outcome outcome = ReadAll(**stream);
  EXPECT_EQ(outcome.last.kind, Kind::kFinished);
  EXPECT_EQ(outcome.tokens,
            FakeModel::ReferenceTokens(testing::FakeModelShape(), request.prompt_ids, {}, 10));
  EXPECT_TRUE(test.loop.idle());
  EXPECT_FALSE((*stream)->TryNext().has_value());
}

TEST(EngineLoopTest, RequestsThatCannotRunAreRefusedAtOnce) {
  EngineFixtureOptions options;
  options.num_pages = 30;
  options.max_context_tokens = 500;
  Loop test(100, options);
  EXPECT_EQ(SubmitOne(test.loop, Share(MakeRequest(1, 499, 2)), {}).status().code(),
            StatusCode::kOutOfRange);
  EXPECT_EQ(SubmitOne(test.loop, Share(MakeRequest(1, 400, 2)), {}).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(SubmitOne(test.loop, Share(MakeRequest(1, 0, 2)), {}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_TRUE(test.loop.idle());
}

TEST(EngineLoopTest, AFullQueueAndADrainingLoopAreUnavailable) {
  Loop test(/*max_queued=*/2);
  ASSERT_TRUE(SubmitOne(test.loop, Share(MakeRequest(1, 5, 5)), {}).ok());
  ASSERT_TRUE(SubmitOne(test.loop, Share(MakeRequest(2, 5, 5)), {}).ok());
  EXPECT_EQ(SubmitOne(test.loop, Share(MakeRequest(3, 5, 5)), {}).status().code(),
            StatusCode::kUnavailable);
  test.loop.BeginDrain();
  EXPECT_TRUE(test.loop.draining());
  EXPECT_EQ(SubmitOne(test.loop, Share(MakeRequest(4, 5, 5)), {}).status().code(),
            StatusCode::kUnavailable);
}

TEST(EngineLoopTest, WhatIsInFlightFinishesWhileDraining) {
  Loop test;
  const auto stream = SubmitOne(test.loop, Share(MakeRequest(1, 30, 10)), {});
  test.loop.BeginDrain();
  test.loop.Start();
  EXPECT_EQ(ReadAll(**stream).last.kind, Kind::kFinished);
}

TEST(EngineLoopTest, CancelEndsAStream) {
  Loop test;
  const auto stream = SubmitOne(test.loop, Share(MakeRequest(1, 30, 2000)), {});
  ASSERT_TRUE(stream.ok());
  test.loop.Start();
  EXPECT_EQ((*stream)->Wait().kind, Kind::kProgress);
  test.loop.Cancel(1);
  test.loop.Cancel(1);
  test.loop.Cancel(99);
  EXPECT_EQ(ReadAll(**stream).last.kind, Kind::kCancelled);
  test.loop.Cancel(1);
}

TEST(EngineLoopTest, StopFailsEverythingAndRefusesMore) {
  Loop test;
  const auto first = SubmitOne(test.loop, Share(MakeRequest(1, 30, 2000)), {});
  test.loop.Start();
  const auto second = SubmitOne(test.loop, Share(MakeRequest(2, 30, 2000)), {});
  test.loop.Stop(Unavailable("going away"));
  for (const auto& stream : {*first, *second}) {
    const Outcome outcome = ReadAll(*stream);
    EXPECT_EQ(outcome.last.kind, Kind::kFailed);
    EXPECT_EQ(StatusMessage(outcome.last.status), "going away");
  }
  EXPECT_TRUE(test.loop.idle());
  EXPECT_FALSE(SubmitOne(test.loop, Share(MakeRequest(3, 30, 2000)), {}).ok());
  EXPECT_EQ(test.fixture.engine().stats().pages_used, 0);
  test.loop.Stop(Unavailable("twice"));
}

TEST(EngineLoopTest, ALoopThatNeverStartedStillEndsItsStreams) {
  std::shared_ptr<EventStream> stream;
  {
    Loop test;
    stream = *SubmitOne(test.loop, Share(MakeRequest(1, 30, 10)), {});
  }
  EXPECT_EQ(ReadAll(*stream).last.kind, Kind::kFailed);
}

TEST(EngineLoopTest, TheObserverSeesEveryTerminalEventBeforeItsReader) {
  Loop test;
  std::atomic<int> terminal{0};
  test.loop.SetObserver([&](const std::vector<EngineEvent>& events, int64_t step_ns) {
    for (const EngineEvent& event : events) {
      terminal += IsTerminal(event.event.kind) ? 1 : 0;
    }
    EXPECT_GE(step_ns, 0);
  });
  test.loop.Start();
  for (RequestId id = 1; id <= 5; ++id) {
    const auto stream = SubmitOne(test.loop, Share(MakeRequest(id, 10, 3)), {});
    ReadAll(**stream);
    EXPECT_EQ(terminal.load(), static_cast<int>(id));
  }
  EXPECT_EQ(test.loop.stats().generated_tokens, 15);
  test.loop.SetObserver({});
}

TEST(EngineLoopTest, TheHeartbeatFollowsTheClock) {
  Loop test;
  test.fixture.clock().Advance(1'000'000);
  const int64_t now_ns = test.fixture.clock().NowNs();
  test.loop.Start();
  const auto stream = SubmitOne(test.loop, Share(MakeRequest(1, 10, 3)), {});
  ReadAll(**stream);
  EXPECT_EQ(test.loop.heartbeat_ns(), now_ns);
}

TEST(EngineLoopTest, ADeadlineEndsARequestThatRuns) {
  Loop test;
  test.fixture.clock().SetTick(1000);  // every look at the clock takes a microsecond
  Request request = MakeRequest(1, 10, 2000);
  request.deadline_ns = test.fixture.clock().NowNs() + 100'000;
  test.loop.Start();
  const auto stream = SubmitOne(test.loop, Share(request), {});
  EXPECT_EQ(ReadAll(**stream).last.status.code(), StatusCode::kDeadlineExceeded);
}

// What a transport shares with the engine thread: it never blocks on the stream, it is woken.
class Bell {
 public:
  void Ring() {
    const std::lock_guard<std::mutex> lock(mutex_);
    rung_ = true;
    wake_.notify_one();
  }
  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    wake_.wait(lock, [&] { return rung_; });
    rung_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool rung_ = false;
};

Outcome ReadWhenWoken(EventStream& stream, Bell& bell) {
  Outcome outcome;
  while (outcome.num_terminal == 0) {
    bell.Wait();
    while (std::optional<RequestEvent> event = stream.TryNext()) {
      AddToOutcome(*event, outcome);
    }
  }
  return outcome;
}

TEST(EngineLoopTest, ManyThreadsSubmitAndCancelAndEverySurvivorGetsItsOwnTokens) {
  EngineFixtureOptions options;
  options.num_pages = 120;  // a few at a time
  options.limits.max_rows = 32;
  Loop test(1000, options);
  test.loop.Start();
  constexpr int kThreads = 6;
  constexpr int kPerThread = 12;
  std::atomic<int> finished{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kPerThread; ++i) {
        const auto id = static_cast<RequestId>(thread * 1000 + i + 1);
        const Request request = MakeRequest(id, 10 + i, 8, id);
        const auto bell = std::make_shared<Bell>();
        const auto stream = SubmitOne(test.loop, Share(request), [bell] { bell->Ring(); });
        ASSERT_TRUE(stream.ok());
        const bool cancels = i % 3 == 2;
        if (cancels) {
          test.loop.Cancel(id);
        }
        const Outcome outcome = ReadWhenWoken(**stream, *bell);
        if (outcome.last.kind == Kind::kFinished) {
          ++finished;
          EXPECT_EQ(outcome.tokens, FakeModel::ReferenceTokens(testing::FakeModelShape(),
                                                               request.prompt_ids, {}, 8));
        } else {
          EXPECT_TRUE(cancels);
          EXPECT_EQ(outcome.last.kind, Kind::kCancelled);
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_GE(finished.load(), kThreads * kPerThread * 2 / 3);
  EXPECT_TRUE(test.loop.idle());
  EXPECT_EQ(test.loop.stats().pages_used, 0);
}

}  // namespace
}  // namespace headroom::engine
