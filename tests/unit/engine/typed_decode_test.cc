// Decode that evicts by score: against a dictionary per head, and within its reservation.
#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "engine/engine.h"
#include "engine/kv/slot_scores.h"
#include "tests/support/dictionary_decoder.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/kv_fixture.h"

namespace headroom::engine {
namespace {

using testing::DictionaryDecoder;
using testing::EngineFixture;
using testing::EngineFixtureOptions;
using testing::KvFixture;
using testing::KvFixtureOptions;
using testing::MakeRequest;
using testing::Outcome;
using testing::SubmitOf;

using Scores = std::vector<int64_t>;

Scores AllScores(const SlotScores& scores, int32_t num_slots) {
  Scores all;
  for (int32_t slot = 0; slot < num_slots; ++slot) {
    all.push_back(scores.Score(slot, /*num_observers=*/2));
  }
  return all;
}

TEST(SlotScoresTest, SumsStartWithThePromptsAndTakeEveryRow) {
  SlotScores scores(DecodeScore::kSum, {10, 20});
  scores.AddRow(Scores{1, 2, 3});
  scores.AddRow(Scores{1, 2, 3, 4});
  EXPECT_EQ(AllScores(scores, 5), (Scores{12, 24, 6, 4, 0}));
  SlotScores means(DecodeScore::kMean, {10, 21});
  EXPECT_EQ(AllScores(means, 2), (Scores{5, 10}));
}

TEST(SlotScoresTest, AScoreGoesWithItsSlot) {
  for (const DecodeScore kind : {DecodeScore::kSum, DecodeScore::kRecentCount}) {
    SlotScores scores(kind, {0, 0, 0, 0});
    scores.AddRow(Scores{1, 2, 3, 4, 5});
    scores.Drop(std::vector<int32_t>{1, 3});
    EXPECT_EQ(AllScores(scores, 3), (Scores{1, 3, 5}));
    scores.AddRow(Scores{10, 10, 10, 7});
    EXPECT_EQ(AllScores(scores, 4), (Scores{11, 13, 15, 7}));
  }
}

TEST(SlotScoresTest, CountsLookBackFourHundredRowsInBlocks) {
  SlotScores scores(DecodeScore::kRecentCount, {0});
  for (int32_t row = 0; row < 16; ++row) {
    scores.AddRow(Scores{1});
  }
  for (int32_t row = 16; row < 400; ++row) {
    scores.AddRow(Scores{0});
  }
  EXPECT_EQ(scores.Score(0, 1), 16);  // rows 0 to 15 are still among the last 400
  scores.AddRow(Scores{0});
  EXPECT_EQ(scores.Score(0, 1), 0);
}

TEST(SlotScoresTest, ThePromptsCountsLeaveEvenly) {
  SlotScores scores(DecodeScore::kRecentCount, {100});
  EXPECT_EQ(scores.Score(0, 1), 100);
  scores.AddRow(Scores{0});
  EXPECT_EQ(scores.Score(0, 1), 96);
  for (int32_t row = 1; row < 385; ++row) {
    scores.AddRow(Scores{0});
  }
  EXPECT_EQ(scores.Score(0, 1), 0);
}

KvPolicySpec TypedSpec(const std::string& policy, int64_t retention_tokens) {
  KvPolicySpec spec = testing::MakeKvSpec(policy, kPpm, kPpm, KvDecode::kTyped);
  spec.retention_tokens = retention_tokens;
  return spec;
}

struct DictionaryCase {
  int32_t num_heads = 4;
  int32_t num_kv_heads = 2;
  bool mean = false;
  int32_t num_tokens = 320;
};

class TypedH2oTest : public ::testing::TestWithParam<DictionaryCase> {};

TEST_P(TypedH2oTest, GreedyOutputAndKeptPositionsEqualTheDictionarys) {
  constexpr int32_t kCapacity = 40;
  const DictionaryCase& with = GetParam();
  KvFixtureOptions options;
  options.shape.num_heads = with.num_heads;
  options.shape.num_kv_heads = with.num_kv_heads;
  KvFixture fixture(options);
  Request request =
      MakeRequest(1, 70, with.num_tokens, /*prompt_seed=*/5, options.shape.vocab_size);
  request.kv = TypedSpec("h2o", kCapacity);
  request.kv.options.count_normalised = with.mean;
  EngineConfig config;
  config.check_invariants = true;
  Engine engine(config, fixture.model(), fixture.cache(), fixture.policies(), nullptr);
  DictionaryDecoder oracle(fixture.loaded(), {.sinks = request.kv.sink_tokens,
                                              .recent = kCapacity / 2,
                                              .capacity = kCapacity,
                                              .mean = with.mean});
  std::vector<Command> commands = {SubmitOf(request)};
  int32_t expected = oracle.Read(request.prompt_ids);
  int32_t num_tokens = 0;
  while (num_tokens < with.num_tokens) {
    for (const EngineEvent& event : engine.Step(0, std::exchange(commands, {}))) {
      for (const SampledToken& token : event.event.tokens) {
        ASSERT_EQ(token.token, expected)
            << "token " << num_tokens << ", the closest cut so far " << oracle.smallest_gap();
        ++num_tokens;
        expected = oracle.Next(token.token);
      }
    }
  }
  // The engine had one forward pass less: its last token was never fed.
  EXPECT_FALSE(engine.HasWork());
  EXPECT_EQ(engine.stats().pages_used, 0);
}

TEST_P(TypedH2oTest, KeptPositionsEqualTheDictionarysAfterEveryToken) {
  constexpr int32_t kCapacity = 40;
  const DictionaryCase& with = GetParam();
  KvFixtureOptions options;
  options.shape.num_heads = with.num_heads;
  options.shape.num_kv_heads = with.num_kv_heads;
  KvFixture fixture(options);
  Request request =
      MakeRequest(1, 70, with.num_tokens, /*prompt_seed=*/5, options.shape.vocab_size);
  request.kv = TypedSpec("h2o", kCapacity);
  request.kv.options.count_normalised = with.mean;
  Engine engine(EngineConfig(), fixture.model(), fixture.cache(), fixture.policies(), nullptr);
  DictionaryDecoder oracle(fixture.loaded(), {.sinks = request.kv.sink_tokens,
                                              .recent = kCapacity / 2,
                                              .capacity = kCapacity,
                                              .mean = with.mean});
  oracle.Read(request.prompt_ids);
  std::vector<EngineEvent> events = engine.Step(0, {SubmitOf(request)});
  for (int32_t fed = 0; fed + 2 < with.num_tokens; ++fed) {
    oracle.Next(events.back().event.tokens.back().token);
    events = engine.Step(0, {});
    for (int32_t layer = 0; layer < options.shape.num_layers; ++layer) {
      for (int32_t head = 0; head < with.num_kv_heads; ++head) {
        ASSERT_EQ(fixture.cache().Snapshot(0, layer, head).positions, oracle.Positions(layer, head))
            << "after " << fed + 1 << " decode rows, layer " << layer << " head " << head
            << ", the closest cut so far " << oracle.smallest_gap();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, TypedH2oTest,
                         ::testing::Values(DictionaryCase{.num_tokens = 2000},
                                           DictionaryCase{.num_heads = 3, .num_kv_heads = 1},
                                           DictionaryCase{.mean = true}));

// Pages of a request, all heads together, in every step of a long answer.
void ExpectWithinReservation(const std::string& policy) {
  constexpr int32_t kCapacity = 50;
  EngineFixture fixture({});
  Request request = MakeRequest(1, 120, 2000);
  request.kv.policy = policy;
  request.kv.retention_tokens = kCapacity;
  request.kv.decode = KvDecode::kTyped;
  fixture.Submit(request);
  ASSERT_EQ(fixture.outcome(1, 0).num_terminal, 0)
      << StatusMessage(fixture.outcome(1, 0).last.status);
  const int64_t bound = 3 * 2 * ((kCapacity + 2 * kernels::kPageSize - 1) / kernels::kPageSize);
  int64_t most = 0;
  while (fixture.engine().HasWork()) {
    fixture.Step();
    const EngineStats& stats = fixture.engine().stats();
    most = std::max(most, stats.pages_used);
    if (stats.running > 0) {
      ASSERT_EQ(stats.pages_reserved, bound);
    }
  }
  EXPECT_EQ(most, bound);
  EXPECT_EQ(fixture.outcome(1, 0).tokens.size(), 2000u);
}

TEST(TypedDecodeTest, TwoThousandTokensStayWithinTheReservationToThePage) {
  for (const char* policy : {"streaming", "h2o", "scissorhands"}) {
    SCOPED_TRACE(policy);
    ExpectWithinReservation(policy);
  }
}

// Heads that are typed once the prompt has been read: from then on the reservation is theirs, to
// the page, and far below what growing heads would take.
TEST(TypedDecodeTest, HeadsTypedByScoresStayWithinTheirReservationForTwoThousandTokens) {
  for (const char* policy : {"fastgen", "adaptive"}) {
    SCOPED_TRACE(policy);
    EngineFixtureOptions options;
    options.num_pages = 3 * 2 * 200;
    EngineFixture fixture(options);
    Request request = MakeRequest(1, 120, 2000);
    request.kv = testing::MakeKvSpec(policy, policy == std::string("fastgen") ? kPpm : 300'000,
                                     kPpm, KvDecode::kTyped);
    request.kv.recovery_ppm = 300'000;
    fixture.Submit(request);
    ASSERT_EQ(fixture.outcome(1, 0).num_terminal, 0)
        << StatusMessage(fixture.outcome(1, 0).last.status);
    int64_t reserved = -1;
    int64_t most = 0;
    while (fixture.engine().HasWork()) {
      fixture.Step();
      const EngineStats& stats = fixture.engine().stats();
      if (stats.running > 0 && !fixture.outcome(1, 0).tokens.empty()) {
        ASSERT_TRUE(reserved < 0 || stats.pages_reserved == reserved);
        reserved = stats.pages_reserved;
        most = std::max(most, stats.pages_used);
      }
    }
    EXPECT_EQ(fixture.outcome(1, 0).tokens.size(), 2000u);
    // The last token is never fed: each head may lack the page that it was reserved.
    EXPECT_LE(most, reserved);
    EXPECT_GE(most, reserved - 3 * 2);
    // Dense heads of the map, and heads that need all, grow.
    EXPECT_LT(reserved, 3 * 2 * (2000 / kernels::kPageSize) * 3 / 5);
  }
}

TEST(TypedDecodeTest, ChoicesEvictOnTheirOwn) {
  for (const char* policy : {"h2o", "scissorhands", "fastgen", "adaptive"}) {
    SCOPED_TRACE(policy);
    Request request = MakeRequest(1, 90, 150);
    request.kv.policy = policy;
    if (policy == std::string("fastgen")) {
      request.kv.recovery_ppm = 400'000;
    } else {
      request.kv.retention_tokens = 40;
    }
    request.kv.decode = KvDecode::kTyped;
    request.sampling.temperature = 1.0f;
    request.num_choices = 3;
    EngineFixture together({});
    together.Run(request);
    for (int32_t choice = 0; choice < 3; ++choice) {
      Request alone = request;
      alone.num_choices = 1;
      alone.sampling.choice = static_cast<uint32_t>(choice);
      EngineFixture fixture({});
      EXPECT_EQ(together.outcome(1, choice).tokens, fixture.Run(alone).tokens) << choice;
    }
  }
}

}  // namespace
}  // namespace headroom::engine
