// Preemption: a request that was put back into the queue goes on as if nothing had happened.
#include <gtest/gtest.h>

#include <memory>

#include "engine/engine.h"
#include "kernels/ref/ref_backend.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/forwarding_backend.h"
#include "tests/support/kv_fixture.h"
#include "tests/support/policy_cases.h"

namespace headroom::engine {
namespace {

using testing::EngineFixture;
using testing::EngineFixtureOptions;
using testing::MakeRequest;
using testing::Outcome;
using testing::SubmitOf;
using Kind = RequestEvent::Kind;

// Counts the ops that score or select.
class ScoringBackend final : public testing::ForwardingBackend {
 public:
  explicit ScoringBackend(int64_t* calls)
      : ForwardingBackend(kernels::CreateRefBackend()), calls_(calls) {}
  void WindowScores(const kernels::WindowScoresParams& params) override {
    ++*calls_;
    ForwardingBackend::WindowScores(params);
  }
  void ColumnScores(const kernels::ColumnScoresParams& params) override {
    ++*calls_;
    ForwardingBackend::ColumnScores(params);
  }
  void SelectTopK(const kernels::SelectTopKParams& params) override {
    ++*calls_;
    ForwardingBackend::SelectTopK(params);
  }

 private:
  int64_t* calls_;
};

Request MakeVictim(const KvPolicySpec& spec, int32_t max_new_tokens, int32_t num_choices) {
  Request request = MakeRequest(2, 60, max_new_tokens, /*prompt_seed=*/9);
  request.kv = spec;
  request.trace_kv = true;
  request.num_choices = num_choices;
  request.sampling.temperature = 1.0f;
  request.sampling.presence_penalty = 0.5f;
  return request;
}

// A pool in which two requests are admitted together and one has to go after a while.
EngineFixtureOptions TightOptions(int32_t group_size) {
  EngineFixtureOptions options;
  options.shape.group_size = group_size;
  options.limits.max_rows = 64;
  options.kv_overcommit = 1.9;
  return options;
}

struct Preempted {
  std::vector<Outcome> choices;
  int64_t preemptions = 0;
  int64_t recomputed = 0;
  int64_t scoring_calls_replaying = 0;  // from the preemption to the victim's next token
  bool first_finished = false;
};

// Runs `victim` behind an older request that grows until the victim has to go.
Preempted RunPreempted(const Request& victim, EngineFixtureOptions options) {
  // The older request keeps everything and never scores.
  const Request older = MakeRequest(1, 40, 200, /*prompt_seed=*/3);
  // What the older one needs in the end and half of what the victim does, which fits alone.
  const int32_t heads = options.shape.num_layers * options.shape.num_kv_heads;
  int64_t victim_pages = 0;
  {
    EngineFixture roomy(options);
    roomy.Submit(victim);
    while (roomy.outcome(2, 0).tokens.empty()) {
      roomy.Step();
    }
    victim_pages = roomy.engine().stats().pages_reserved;
  }
  options.num_pages = static_cast<int32_t>(heads * 15 + victim_pages / 2);
  while (!EngineFixture(options).engine().CheckFits(victim).ok()) {
    options.num_pages += heads;
  }
  int64_t calls = 0;
  EngineFixture fixture(options, nullptr, std::make_unique<ScoringBackend>(&calls));
  fixture.Step({SubmitOf(older), SubmitOf(victim)});
  int64_t calls_before = -1;
  size_t tokens_before = 0;
  Preempted result;
  while (fixture.engine().HasWork()) {
    const int64_t calls_now = calls;
    fixture.Step();
    const size_t num_tokens = fixture.outcome(2, 0).tokens.size();
    if (calls_before < 0 && fixture.engine().stats().preemptions > 0) {
      calls_before = calls;
      tokens_before = num_tokens;
    } else if (calls_before >= 0 && num_tokens == tokens_before + 1) {
      // This step's row was scored, under typed; those before it were not.
      result.scoring_calls_replaying = calls_now - calls_before;
      tokens_before = static_cast<size_t>(-2);
    }
  }
  for (int32_t choice = 0; choice < victim.num_choices; ++choice) {
    result.choices.push_back(fixture.outcome(2, choice));
  }
  result.preemptions = fixture.engine().stats().preemptions;
  result.recomputed = fixture.engine().stats().recomputed_tokens;
  result.first_finished = fixture.outcome(1, 0).last.kind == Kind::kFinished;
  EXPECT_EQ(fixture.outcome(1, 0).tokens.size(), 200u);
  EXPECT_EQ(fixture.engine().stats().pages_used, 0);
  return result;
}

std::vector<Outcome> RunAlone(const Request& request, const EngineFixtureOptions& like) {
  EngineFixtureOptions options;
  options.shape = like.shape;
  EngineFixture fixture(options);
  fixture.Run(request);
  std::vector<Outcome> choices;
  for (int32_t choice = 0; choice < request.num_choices; ++choice) {
    choices.push_back(fixture.outcome(request.id, choice));
  }
  return choices;
}

void ExpectUndisturbed(const Outcome& outcome, const Outcome& alone) {
  EXPECT_EQ(outcome.tokens, alone.tokens);
  EXPECT_EQ(outcome.num_terminal, 1);
  EXPECT_EQ(outcome.last.kind, Kind::kFinished);
  ASSERT_TRUE(outcome.last.kv_trace.has_value());
  EXPECT_EQ(outcome.last.kv_trace->kept, alone.last.kv_trace->kept);
  EXPECT_EQ(outcome.last.receipt.entries, alone.last.receipt.entries);
  EXPECT_EQ(outcome.last.receipt.pages, alone.last.receipt.pages);
  EXPECT_EQ(outcome.last.receipt.propagated_tokens, alone.last.receipt.propagated_tokens);
  EXPECT_EQ(outcome.last.usage.completion_tokens, alone.last.usage.completion_tokens);
}

TEST(PreemptionTest, AResumedRequestGoesOnAsIfUndisturbedUnderEveryPolicy) {
  for (const int32_t group_size : {1, 3, 4, 8}) {
    const EngineFixtureOptions options = TightOptions(group_size);
    for (const testing::PolicyCase& each : testing::MakePolicyCases()) {
      // Where only scores tell how much stays, three choices reserve more than they ever take.
      const bool decided = each.spec.decode == KvDecode::kGrow ||
                           (each.spec.policy != "fastgen" && each.spec.policy != "adaptive");
      const int32_t num_choices = group_size == 4 && decided ? 3 : 1;
      SCOPED_TRACE(::testing::Message() << each.name << ", group " << group_size);
      const Request victim = MakeVictim(each.spec, 195, num_choices);
      const Preempted result = RunPreempted(victim, options);
      EXPECT_EQ(result.preemptions, 1);
      EXPECT_TRUE(result.first_finished);
      EXPECT_GT(result.recomputed, 60);  // answer tokens too
      EXPECT_EQ(result.scoring_calls_replaying, 0);
      const std::vector<Outcome> alone = RunAlone(victim, options);
      for (size_t choice = 0; choice < alone.size(); ++choice) {
        SCOPED_TRACE(choice);
        ExpectUndisturbed(result.choices[choice], alone[choice]);
      }
    }
  }
}

TEST(PreemptorTest, TheAnswerSoFarIsFedInWholeSteps) {
  const EngineFixtureOptions options = TightOptions(2);
  EngineFixtureOptions tight = options;
  tight.num_pages = 6 * 17;
  EngineFixture fixture(tight);
  fixture.Step({SubmitOf(MakeRequest(1, 40, 200, 3)),
                SubmitOf(MakeVictim(testing::MakeKvSpec("fastkv", 400'000, 500'000), 150, 1))});
  while (fixture.engine().stats().preemptions == 0) {
    fixture.Step();
  }
  const size_t generated = fixture.outcome(2, 0).tokens.size();
  ASSERT_GT(generated, 30u);
  fixture.Step({CancelCommand{.id = 1}});
  int64_t steps = 1;
  while (fixture.outcome(2, 0).tokens.size() == generated) {
    fixture.Step();
    ++steps;
  }
  // Two phases of the prompt, the answer but for its last token, and that one.
  EXPECT_EQ(steps, 2 + (static_cast<int64_t>(generated) - 1 + 63) / 64 + 1);
}

TEST(PreemptorTest, APreemptedRequestCanBeCancelledAndKeepsItsReceipt) {
  EngineFixtureOptions options = TightOptions(2);
  options.num_pages = 6 * 17;
  EngineFixture fixture(options);
  Request victim = MakeVictim(testing::MakeKvSpec("fastkv", 400'000, 500'000), 150, 1);
  victim.queue_deadline_ns = fixture.clock().NowNs() + 1000;
  fixture.Step({SubmitOf(MakeRequest(1, 40, 200, 3)), SubmitOf(victim)});
  while (fixture.engine().stats().preemptions == 0) {
    fixture.Step();
  }
  // It has been admitted once: what it may wait in the queue is over.
  fixture.clock().Advance(2000);
  fixture.Step();
  EXPECT_EQ(fixture.outcome(2, 0).num_terminal, 0);
  EXPECT_EQ(fixture.engine().stats().waiting, 1);
  fixture.Step({CancelCommand{.id = 2}});
  const RequestEvent& last = fixture.outcome(2, 0).last;
  EXPECT_EQ(last.kind, Kind::kCancelled);
  EXPECT_GT(last.receipt.entries, 0);
  EXPECT_EQ(last.usage.completion_tokens,
            static_cast<int64_t>(fixture.outcome(2, 0).tokens.size()));
  fixture.RunToEnd();
  EXPECT_EQ(fixture.engine().stats().pages_used, 0);
}

TEST(PreemptorTest, TheOldestRequestIsNeverPreempted) {
  EngineFixtureOptions options = TightOptions(2);
  options.num_pages = 6 * 20;
  EngineFixture fixture(options);
  std::vector<Command> commands;
  for (RequestId id = 1; id <= 6; ++id) {
    commands.push_back(SubmitOf(MakeRequest(id, 30, 200, id)));
  }
  fixture.Step(std::move(commands));
  while (fixture.outcome(1, 0).tokens.empty()) {
    fixture.Step();
  }
  while (fixture.outcome(1, 0).num_terminal == 0) {
    const size_t before = fixture.outcome(1, 0).tokens.size();
    fixture.Step();
    // Whatever happens to the others.
    EXPECT_EQ(fixture.outcome(1, 0).tokens.size(), before + 1);
  }
  fixture.RunToEnd();
  EXPECT_GT(fixture.engine().stats().preemptions, 0);
  for (RequestId id = 1; id <= 6; ++id) {
    EXPECT_EQ(fixture.outcome(id, 0).tokens,
              testing::FakeModel::ReferenceTokens(options.shape,
                                                  MakeRequest(id, 30, 200, id).prompt_ids, {}, 200))
        << id;
  }
}

TEST(PreemptorTest, WithoutOvercommitNobodyIsPreempted) {
  EngineFixtureOptions options;
  options.num_pages = 6 * 20;
  EngineFixture fixture(options);
  std::vector<Command> commands;
  for (RequestId id = 1; id <= 6; ++id) {
    commands.push_back(SubmitOf(MakeRequest(id, 30, 100, id)));
  }
  fixture.Step(std::move(commands));
  fixture.RunToEnd();
  EXPECT_EQ(fixture.engine().stats().preemptions, 0);
  EXPECT_EQ(fixture.engine().stats().recomputed_tokens, 0);
}

}  // namespace
}  // namespace headroom::engine
