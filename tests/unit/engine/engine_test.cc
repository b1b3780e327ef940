#include "engine/engine.h"

#include <gtest/gtest.h>

#include <string>

#include "models/tokenizer/tokenizer.h"
#include "tests/support/engine_fixture.h"

namespace headroom::engine {
namespace {

using testing::EngineFixture;
using testing::EngineFixtureOptions;
using testing::FakeModel;
using testing::MakeRequest;
using testing::Outcome;
using testing::SubmitOf;
using Kind = RequestEvent::Kind;

EngineFixtureOptions ChunkOptions(int32_t max_rows) {
  EngineFixtureOptions options;
  options.limits.max_rows = max_rows;
  return options;
}

KvPolicySpec SpecOf(const std::string& policy, int64_t retention_ppm, int64_t tsp_ppm) {
  KvPolicySpec spec = MakeRequest(0, 1, 1).kv;
  spec.policy = policy;
  spec.retention_ppm = retention_ppm;
  spec.tsp_ppm = tsp_ppm;
  spec.decode = policy == "streaming" ? KvDecode::kTyped : KvDecode::kGrow;
  return spec;
}

TEST(EngineTest, FullCacheTokensEqualTheReferenceWithoutPages) {
  for (const int32_t num_prompt : {1, 2, 15, 16, 17, 40}) {
    EngineFixture fixture(ChunkOptions(512));
    const Request request = MakeRequest(1, num_prompt, 20);
    const Outcome& outcome = fixture.Run(request);
    EXPECT_EQ(outcome.tokens,
              FakeModel::ReferenceTokens(testing::FakeModelShape(), request.prompt_ids, {}, 20))
        << "prompt of " << num_prompt;
    EXPECT_EQ(outcome.last.kind, Kind::kFinished);
    EXPECT_EQ(outcome.last.finish_reason, FinishReason::kLength);
    EXPECT_EQ(outcome.last.usage.prompt_tokens, num_prompt);
    EXPECT_EQ(outcome.last.usage.completion_tokens, 20);
  }
}

TEST(EngineTest, TokensAfterEvictionEqualTheReferenceOnTheKeptSlots) {
  for (const char* policy : {"ragged", "fastkv", "streaming"}) {
    EngineFixture fixture(ChunkOptions(512));
    Request request = MakeRequest(1, 60, 12);
    request.kv = SpecOf(policy, policy == std::string("ragged") ? kPpm : 400'000, kPpm);
    request.kv.decode = KvDecode::kGrow;
    if (policy == std::string("streaming")) {
      // Few enough tokens that its ring does not turn yet.
      request.kv.decode = KvDecode::kTyped;
      request.stop.max_new_tokens = 12;
    }
    request.trace_kv = true;
    const Outcome& outcome = fixture.Run(request);
    ASSERT_EQ(outcome.last.kind, Kind::kFinished) << StatusMessage(outcome.last.status);
    ASSERT_TRUE(outcome.last.kv_trace.has_value());
    EXPECT_LT(outcome.last.receipt.entries, outcome.last.receipt.entries_full) << policy;
    EXPECT_EQ(outcome.tokens,
              FakeModel::ReferenceTokens(testing::FakeModelShape(), request.prompt_ids,
                                         outcome.last.kv_trace->kept, 12))
        << policy;
  }
}

TEST(EngineTest, ChunkSizesDoNotChangeTokens) {
  for (const auto& spec : {SpecOf("full", kPpm, kPpm), SpecOf("streaming", 300'000, kPpm),
                           SpecOf("fastkv", 300'000, 300'000), SpecOf("ragged", kPpm, 500'000)}) {
    std::vector<int32_t> expected;
    for (const int32_t max_rows : {512, 64, 7, 1}) {
      EngineFixture fixture(ChunkOptions(max_rows));
      Request request = MakeRequest(1, 70, 40);
      request.kv = spec;
      const Outcome& outcome = fixture.Run(request);
      ASSERT_EQ(outcome.last.kind, Kind::kFinished);
      if (expected.empty()) {
        expected = outcome.tokens;
      }
      EXPECT_EQ(outcome.tokens, expected) << spec.policy << " max_rows " << max_rows;
    }
  }
}

TEST(EngineTest, RequestsTogetherGetTheTokensTheyGetAlone) {
  std::vector<Request> requests;
  for (RequestId id = 1; id <= 9; ++id) {
    Request request = MakeRequest(id, 5 + static_cast<int32_t>(id) * 7, 15, id);
    const KvPolicySpec specs[] = {SpecOf("full", kPpm, kPpm), SpecOf("fastkv", 200'000, 400'000),
                                  SpecOf("ragged", kPpm, kPpm)};
    request.kv = specs[id % 3];
    requests.push_back(request);
  }
  EngineFixture together(ChunkOptions(40));
  std::vector<Command> commands;
  for (const Request& request : requests) {
    commands.push_back(SubmitOf(request));
  }
  together.Step(std::move(commands));
  together.RunToEnd();
  for (const Request& request : requests) {
    EngineFixture alone(ChunkOptions(512));
    EXPECT_EQ(together.outcomes()[request.id].tokens, alone.Run(request).tokens) << request.id;
  }
  EXPECT_EQ(together.engine().stats().pages_used, 0);
}

TEST(EngineTest, TheOracleSeesARowThatReadsANeighboursPages) {
  EngineFixture fixture(ChunkOptions(512));
  fixture.model().ReadNeighboursPages();
  const Request first = MakeRequest(1, 40, 10, 1);
  const Request second = MakeRequest(2, 30, 10, 2);
  fixture.Step({SubmitOf(first), SubmitOf(second)});
  fixture.RunToEnd();
  EXPECT_NE(fixture.outcomes()[2].tokens,
            FakeModel::ReferenceTokens(testing::FakeModelShape(), second.prompt_ids, {}, 10));
}

TEST(EngineTest, ACancelledRequestIsGoneWithinTheStep) {
  EngineFixture fixture(ChunkOptions(16));
  fixture.Submit(MakeRequest(1, 64, 10));  // in the middle of its prompt
  fixture.Submit(MakeRequest(2, 64, 10));
  ASSERT_GT(fixture.engine().stats().pages_used, 0);
  const std::vector<EngineEvent> events = fixture.Step({CancelCommand{1}, CancelCommand{2}});
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].event.kind, Kind::kCancelled);
  EXPECT_EQ(events[1].event.kind, Kind::kCancelled);
  EXPECT_EQ(fixture.engine().stats().pages_used, 0);
  EXPECT_FALSE(fixture.engine().HasWork());
}

TEST(EngineTest, CancellingWhileDecodingReportsWhatWasGenerated) {
  EngineFixture fixture(ChunkOptions(512));
  fixture.Submit(MakeRequest(1, 20, 100));
  fixture.Step();
  fixture.Step();
  fixture.Step({CancelCommand{1}});
  const Outcome& outcome = fixture.outcomes()[1];
  EXPECT_EQ(outcome.last.kind, Kind::kCancelled);
  EXPECT_EQ(outcome.last.usage.completion_tokens, 3);
  EXPECT_EQ(outcome.last.receipt.entries, 20 * 3 * 2);
}

TEST(EngineTest, CancellingTwiceOrAnUnknownIdDoesNothing) {
  EngineFixture fixture(ChunkOptions(512));
  fixture.Submit(MakeRequest(1, 20, 100));
  EXPECT_EQ(fixture.Step({CancelCommand{1}, CancelCommand{1}, CancelCommand{77}}).size(), 1u);
}

TEST(EngineTest, DeadlinesFailAndReturnPages) {
  EngineFixture fixture(ChunkOptions(512));
  Request request = MakeRequest(1, 20, 100);
  request.deadline_ns = fixture.clock().NowNs() + 50;
  fixture.Submit(request);
  EXPECT_EQ(fixture.engine().NextDeadlineNs(), request.deadline_ns);
  fixture.clock().Advance(49);
  fixture.Step();
  EXPECT_EQ(fixture.outcomes()[1].num_terminal, 0);
  fixture.clock().Advance(1);
  fixture.Step();
  EXPECT_EQ(fixture.outcomes()[1].last.status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(fixture.outcomes()[1].last.expired_in_queue);
  EXPECT_EQ(fixture.engine().stats().pages_used, 0);
}

TEST(EngineTest, TheQueueDeadlineOnlyCountsWhileWaiting) {
  EngineFixtureOptions options = ChunkOptions(512);
  options.limits.max_running = 1;
  EngineFixture fixture(options);
  Request first = MakeRequest(1, 20, 30);
  Request second = MakeRequest(2, 20, 30);
  first.queue_deadline_ns = second.queue_deadline_ns = fixture.clock().NowNs() + 50;
  fixture.Step({SubmitOf(first), SubmitOf(second)});
  fixture.clock().Advance(50);
  fixture.RunToEnd();
  EXPECT_EQ(fixture.outcomes()[1].last.kind, Kind::kFinished);
  EXPECT_EQ(fixture.outcomes()[2].last.status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(fixture.outcomes()[2].last.expired_in_queue);
}

TEST(EngineTest, FailAllEndsWaitingAndRunning) {
  EngineFixtureOptions options = ChunkOptions(512);
  options.limits.max_running = 2;
  EngineFixture fixture(options);
  fixture.Step({SubmitOf(MakeRequest(1, 20, 30)), SubmitOf(MakeRequest(2, 20, 30)),
                SubmitOf(MakeRequest(3, 20, 30))});
  fixture.Step({FailAllCommand{Unavailable("stopping")}});
  for (RequestId id = 1; id <= 3; ++id) {
    EXPECT_EQ(fixture.outcomes()[id].num_terminal, 1);
    EXPECT_EQ(fixture.outcomes()[id].last.status.code(), StatusCode::kUnavailable);
  }
  EXPECT_FALSE(fixture.engine().HasWork());
  EXPECT_EQ(fixture.engine().stats().pages_used, 0);
}

TEST(EngineTest, RequestsWaitForPagesAndAreNotOvertaken) {
  EngineFixtureOptions options = ChunkOptions(512);
  options.num_pages = 30;  // 3 layers * 2 heads * ceil((20 + 30) / 16) = 24 for one
  EngineFixture fixture(options);
  fixture.Step({SubmitOf(MakeRequest(1, 20, 30)), SubmitOf(MakeRequest(2, 20, 30)),
                SubmitOf(MakeRequest(3, 2, 2))});
  EXPECT_EQ(fixture.engine().stats().running, 1);
  EXPECT_EQ(fixture.engine().stats().waiting, 2);  // 3 would fit, but is behind 2
  fixture.RunToEnd();
  for (RequestId id = 1; id <= 3; ++id) {
    EXPECT_EQ(fixture.outcomes()[id].last.kind, Kind::kFinished);
  }
}

TEST(EngineTest, ContextLengthIsRefusedWithBothNumbers) {
  EngineFixtureOptions options = ChunkOptions(512);
  options.max_context_tokens = 100;
  EngineFixture fixture(options);
  EXPECT_TRUE(fixture.engine().CheckFits(MakeRequest(1, 60, 40)).ok());
  const Status status = fixture.engine().CheckFits(MakeRequest(1, 60, 41));
  EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
  EXPECT_EQ(StatusMessage(status),
            "This model's maximum context length is 100 tokens. However, you requested 101 tokens "
            "(60 in the prompt, 41 in the completion). Please reduce the length of the prompt or "
            "the completion.");
}

TEST(EngineTest, WhatCanNeverFitThePoolIsRefusedAtOnce) {
  EngineFixtureOptions options = ChunkOptions(512);
  options.num_pages = 30;
  EngineFixture fixture(options);
  const Status status = fixture.engine().CheckFits(MakeRequest(1, 100, 1));
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(StatusMessage(status).find("the pool has 30"), std::string::npos);
  fixture.Submit(MakeRequest(1, 100, 1));
  EXPECT_EQ(fixture.outcomes()[1].last.status.code(), StatusCode::kResourceExhausted);
}

TEST(EngineTest, BadRequestsAreRefusedNotRun) {
  EngineFixture fixture(ChunkOptions(512));
  Request request = MakeRequest(1, 5, 5);
  request.prompt_ids[3] = 64;
  EXPECT_EQ(fixture.engine().CheckFits(request).code(), StatusCode::kInvalidArgument);
  request.prompt_ids[3] = -1;
  EXPECT_EQ(fixture.engine().CheckFits(request).code(), StatusCode::kInvalidArgument);
  request = MakeRequest(1, 0, 5);
  EXPECT_EQ(fixture.engine().CheckFits(request).code(), StatusCode::kInvalidArgument);
  request = MakeRequest(1, 5, 0);
  EXPECT_EQ(fixture.engine().CheckFits(request).code(), StatusCode::kInvalidArgument);
  request = MakeRequest(1, 5, 5);
  request.kv.policy = "no such policy";
  EXPECT_EQ(fixture.engine().CheckFits(request).code(), StatusCode::kInvalidArgument);
}

TEST(EngineTest, AFullQueueRefuses) {
  EngineFixtureOptions options = ChunkOptions(512);
  options.limits.max_running = 1;
  options.limits.max_queued = 2;
  EngineFixture fixture(options);
  fixture.Submit(MakeRequest(1, 5, 50));
  fixture.Step({SubmitOf(MakeRequest(2, 5, 5)), SubmitOf(MakeRequest(3, 5, 5)),
                SubmitOf(MakeRequest(4, 5, 5))});
  EXPECT_EQ(fixture.outcomes()[4].last.status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(fixture.engine().stats().waiting, 2);
}

TEST(EngineTest, EveryPrefillChunkReportsProgress) {
  EngineFixture fixture(ChunkOptions(16));
  Request request = MakeRequest(1, 40, 1);
  request.kv = SpecOf("fastkv", 500'000, 500'000);
  fixture.Submit(request);
  std::vector<int64_t> done;
  int64_t total = 0;
  while (fixture.engine().HasWork()) {
    for (const EngineEvent& event : fixture.Step()) {
      if (event.event.kind == Kind::kProgress) {
        done.push_back(event.event.rows_done);
        total = event.event.rows_total;
      }
    }
  }
  EXPECT_EQ(done, (std::vector<int64_t>{32, 40, 56, 60}));
  EXPECT_EQ(total, 60);  // 40 rows, then tau * 40 again
}

// Rows of every phase, whatever their number: the last progress is the whole.
TEST(EngineTest, ProgressAndWorkCountEveryPhase) {
  struct Case {
    const char* policy;
    int64_t rows;        // of all phases
    int64_t layer_rows;  // of the prompt
    int64_t entries;
  };
  // Three layers, two heads, 40 tokens, rho 0.5. pyramidinfer keeps 35, 20 and 5 rows and drops from
  // layer 0 on; gemfilter scores with layer 1 and reads 20 tokens again.
  for (const Case& test : {Case{"pyramidinfer", 40 + 35 + 20 + 5, 35 + 20 + 5, 2 * (35 + 20 + 5)},
                           Case{"gemfilter", 40 + 20, 40 + 20 * 3, 2 * 20 * 3}}) {
    SCOPED_TRACE(test.policy);
    EngineFixture fixture(ChunkOptions(16));
    Request request = MakeRequest(1, 40, 1);
    request.kv = SpecOf(test.policy, 500'000, 1'000'000);
    request.kv.window = 1;
    request.kv.sink_tokens = 0;
    request.kv.options.filter_layer = 1;
    fixture.Submit(request);
    int64_t done = 0;
    int64_t total = 0;
    int64_t entries = 0;
    while (fixture.engine().HasWork()) {
      for (const EngineEvent& event : fixture.Step()) {
        if (event.event.kind == Kind::kProgress) {
          done = event.event.rows_done;
          total = event.event.rows_total;
        }
        entries = event.event.receipt.entries;
      }
    }
    EXPECT_EQ(total, test.rows);
    EXPECT_LE(done, total);
    EXPECT_EQ(entries, test.entries);
    EXPECT_EQ(fixture.engine().stats().layer_rows, test.layer_rows);
  }
}

TEST(EngineTest, WorkCountersAreExact) {
  EngineFixture fixture(ChunkOptions(16));
  fixture.Run(MakeRequest(1, 20, 4));
  const EngineStats& stats = fixture.engine().stats();
  EXPECT_EQ(stats.prompt_tokens, 20);
  EXPECT_EQ(stats.generated_tokens, 4);
  EXPECT_EQ(stats.layer_rows, (20 + 3) * 3);  // the last token is never fed
  EXPECT_EQ(stats.attended_slots, (23 * 24 / 2) * 3 * 2);
}

TEST(EngineTest, TheFirstTokensAreNeitherEosNorStopTokens) {
  const Request plain = MakeRequest(1, 20, 10);
  const std::vector<int32_t> tokens =
      FakeModel::ReferenceTokens(testing::FakeModelShape(), plain.prompt_ids, {}, 10);
  Request request = plain;
  request.stop.eos_token_ids = {tokens[0]};
  EXPECT_EQ(EngineFixture(ChunkOptions(64)).Run(request).tokens.size(), 1u);
  request.stop.min_new_tokens = 3;
  EngineFixture fixture(ChunkOptions(64));
  const Outcome& outcome = fixture.Run(request);
  ASSERT_GE(outcome.tokens.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NE(outcome.tokens[i], tokens[0]);
  }
}

TEST(EngineTest, TextAndStopStringsComeFromTheTokenizer) {
  const auto tokenizer = models::CreateByteTokenizer({"<eos>"}, -1, 0);
  EngineFixtureOptions options = ChunkOptions(64);
  options.shape.vocab_size = tokenizer->vocab_size();
  Request request = MakeRequest(1, 20, 10);
  request.decode_text = true;
  EngineFixture fixture(options, tokenizer.get());
  // Printable tokens only, so that text and ids correspond.
  for (int32_t id = 0; id < options.shape.vocab_size; ++id) {
    if (id < 32 || id > 126) {
      request.sampling.logit_bias.emplace_back(id, -100.0f);
    }
  }
  const Outcome plain = fixture.Run(request);
  std::string expected;
  for (const int32_t token : plain.tokens) {
    expected.push_back(static_cast<char>(token));
  }
  EXPECT_EQ(plain.text, expected);

  request.id = 2;
  request.stop.stop_strings = {expected.substr(3, 4)};
  const Outcome stopped = fixture.Run(request);
  EXPECT_EQ(stopped.text, expected.substr(0, expected.find(expected.substr(3, 4))));
  EXPECT_EQ(stopped.last.finish_reason, FinishReason::kStop);
  EXPECT_EQ(stopped.last.stop_string, expected.substr(3, 4));
}

TEST(EngineTest, SeededSamplingDoesNotDependOnTheBatch) {
  Request request = MakeRequest(1, 20, 15);
  request.sampling.temperature = 1.0f;
  request.sampling.top_p = 0.9f;
  request.sampling.seed = 42;
  request.sampling.frequency_penalty = 0.5f;
  request.sampling.repetition_penalty = 1.2f;
  const std::vector<int32_t> alone = EngineFixture(ChunkOptions(64)).Run(request).tokens;
  EngineFixture fixture(ChunkOptions(24));
  fixture.Step({SubmitOf(MakeRequest(7, 50, 20, 3)), SubmitOf(request),
                SubmitOf(MakeRequest(8, 33, 20, 4))});
  fixture.RunToEnd();
  EXPECT_EQ(fixture.outcomes()[1].tokens, alone);
}

}  // namespace
}  // namespace headroom::engine
