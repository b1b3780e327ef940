// Any eviction equals the full cache plus a mask over the evicted (layer, head, position).
//
// The oracle is an independent forward in double precision. Tolerance 1e-5 on logits of order one:
// the reference backend keeps activations and KV in f32, sums in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/forward_driver.h"
#include "tests/support/kv_fixture.h"
#include "tests/support/oracle_forward.h"

namespace headroom::testing {
namespace {

constexpr double kTolerance = 1e-5;

struct PolicyCase {
  const char* name;
  engine::KvPolicySpec spec;
};

std::vector<PolicyCase> PolicyCases() {
  return {
      {"full", MakeKvSpec("full", 1'000'000, 1'000'000)},
      {"full with tsp", MakeKvSpec("full", 1'000'000, 300'000)},
      {"streaming", MakeKvSpec("streaming", 300'000, 1'000'000)},
      {"streaming typed", MakeKvSpec("streaming", 300'000, 1'000'000, engine::KvDecode::kTyped)},
      {"fastkv", MakeKvSpec("fastkv", 250'000, 1'000'000)},
      {"fastkv with tsp", MakeKvSpec("fastkv", 200'000, 400'000)},
      {"ragged", MakeKvSpec("ragged", 1'000'000, 1'000'000)},
      {"ragged with tsp", MakeKvSpec("ragged", 1'000'000, 500'000)}};
}

struct OracleRun {
  DrivenSequence sequence;
  OracleInput input;
};

// Runs one sequence to its end and describes to the oracle what it kept.
OracleRun RunSequence(KvFixture& fixture, const PolicyCase& policy, int32_t num_prompt,
                      int32_t num_decode, int32_t chunk, int32_t content_end) {
  OracleRun run;
  const int32_t vocab = fixture.loaded().config.vocab_size;
  DrivenSequence& sequence = run.sequence;
  sequence.prompt = RandomTokens(num_prompt, vocab, 5);
  sequence.feed = RandomTokens(num_decode, vocab, 6);
  sequence.spec = policy.spec;
  sequence.chunk = chunk;
  sequence.content_end = content_end;
  ForwardDriver driver(fixture.model(), fixture.cache());
  driver.Open(sequence);
  driver.Run({&sequence});

  OracleInput& input = run.input;
  input.tokens = sequence.prompt;
  input.tokens.insert(input.tokens.end(), sequence.feed.begin(), sequence.feed.end());
  input.num_prompt = num_prompt;
  input.tsp_layer = fixture.shape().tsp_layer;
  if (fixture.cache().phases(sequence.handle).size() > 1) {
    const auto rows = fixture.cache().phase_rows(sequence.handle, 1);
    input.tsp_rows.assign(rows.begin(), rows.end());
  }
  input.seen.assign(sequence.kept.begin() + 1, sequence.kept.end());
  driver.Close(sequence);
  EXPECT_EQ(fixture.cache().pool().num_free(), fixture.cache().pool().num_pages());
  return run;
}

// The largest difference of any logit.
double Distance(const KvFixture& fixture, const OracleRun& run) {
  const std::vector<std::vector<double>> wanted = OracleLogits(fixture.loaded(), run.input);
  EXPECT_EQ(run.sequence.logits.size(), wanted.size());
  double worst = 0.0;
  for (size_t row = 0; row < wanted.size(); ++row) {
    for (size_t i = 0; i < wanted[row].size(); ++i) {
      worst = std::max(worst, std::abs(wanted[row][i] - double{run.sequence.logits[row][i]}));
    }
  }
  return worst;
}

void ExpectEqualsOracle(KvFixture& fixture, const PolicyCase& policy, int32_t num_prompt,
                        int32_t num_decode, int32_t chunk, int32_t content_end) {
  SCOPED_TRACE(fmt::format("{}, N {}", policy.name, num_prompt));
  const OracleRun run = RunSequence(fixture, policy, num_prompt, num_decode, chunk, content_end);
  EXPECT_LE(Distance(fixture, run), kTolerance);
}

class MaskOracleTest : public ::testing::TestWithParam<int32_t> {};

TEST_P(MaskOracleTest, EvictionEqualsAMaskForEveryPolicyAndPromptLength) {
  KvFixtureOptions options;
  options.shape.num_heads = GetParam() * 2;
  options.shape.seed = static_cast<uint64_t>(GetParam());
  KvFixture fixture(options);
  for (const PolicyCase& policy : PolicyCases()) {
    for (const int32_t num_prompt : {1, 3, 4, 5, 15, 16, 17, 31, 32, 33, 100}) {
      ExpectEqualsOracle(fixture, policy, num_prompt, 40, 7, -1);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(GroupSizes, MaskOracleTest, ::testing::Values(1, 3, 4, 8));

TEST(MaskOracleTest, HoldsForEveryTspLayerAndBothRopePairings) {
  for (const int32_t tsp_layer : {0, 2}) {
    KvFixtureOptions options;
    options.tsp_layer = tsp_layer;
    options.shape.pairing = models::RopePairing::kInterleaved;
    KvFixture fixture(options);
    for (const PolicyCase& policy : PolicyCases()) {
      ExpectEqualsOracle(fixture, policy, 50, 5, 16, -1);
    }
  }
}

TEST(MaskOracleTest, HoldsWithATemplateSuffix) {
  KvFixture fixture{KvFixtureOptions()};
  for (const PolicyCase& policy : PolicyCases()) {
    ExpectEqualsOracle(fixture, policy, 60, 4, 3, 55);
  }
}

TEST(MaskOracleTest, HoldsForALongPrompt) {
  KvFixtureOptions options;
  options.shape = {.num_layers = 3,
                   .hidden_size = 8,
                   .intermediate_size = 8,
                   .num_heads = 2,
                   .num_kv_heads = 2,
                   .head_dim = 4,
                   .vocab_size = 32};
  KvFixture fixture(options);
  for (const PolicyCase& policy : PolicyCases()) {
    ExpectEqualsOracle(fixture, policy, 2000, 3, 512, -1);
  }
}

// bf16 rounds what the oracle rounds too; where f32 and double fall on two sides of a rounding
// boundary, one element differs by 2^-8 of itself.
TEST(MaskOracleTest, HoldsForABf16Cache) {
  KvFixtureOptions options;
  options.dtype = kernels::KvDType::kBF16;
  KvFixture fixture(options);
  for (const PolicyCase& policy : PolicyCases()) {
    SCOPED_TRACE(policy.name);
    OracleRun run = RunSequence(fixture, policy, 60, 10, 9, -1);
    run.input.bf16_kv = true;
    EXPECT_LE(Distance(fixture, run), 5e-3);
  }
}

TEST(MaskOracleTest, NoticesOneSlotTooManyInOneHead) {
  KvFixture fixture{KvFixtureOptions()};
  OracleRun run =
      RunSequence(fixture, {"fastkv", MakeKvSpec("fastkv", 250'000, 1'000'000)}, 60, 1, 16, -1);
  std::vector<int32_t>& seen = run.input.seen.front().front().back();
  int32_t evicted = 0;
  while (std::binary_search(seen.begin(), seen.end(), evicted)) {
    ++evicted;
  }
  seen.insert(std::upper_bound(seen.begin(), seen.end(), evicted), evicted);
  EXPECT_GT(Distance(fixture, run), 10 * kTolerance);
}

}  // namespace
}  // namespace headroom::testing
