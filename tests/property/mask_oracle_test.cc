// Any eviction equals the full cache plus a mask over the evicted (layer, head, position).
#include "tests/support/mask_oracle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace headroom::testing {
namespace {

class MaskOracleTest : public ::testing::TestWithParam<int32_t> {};

TEST_P(MaskOracleTest, EvictionEqualsAMaskForEveryPolicyAndPromptLength) {
  KvFixtureOptions options;
  options.shape.num_heads = GetParam() * 2;
  options.shape.seed = static_cast<uint64_t>(GetParam());
  KvFixture fixture(options);
  for (const PolicyCase& policy : MakePolicyCases()) {
    for (const int32_t num_prompt : {1, 3, 4, 5, 15, 16, 17, 31, 32, 33, 100}) {
      ExpectEqualsOracle(
          fixture, policy,
          {.num_prompt = num_prompt, .num_decode = num_prompt == 33 ? 60 : 6, .chunk = 7});
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
    for (const PolicyCase& policy : MakePolicyCases()) {
      ExpectEqualsOracle(fixture, policy, {.num_prompt = 50, .num_decode = 5, .chunk = 16});
    }
  }
}

TEST(MaskOracleTest, HoldsWithATemplateSuffix) {
  KvFixture fixture{KvFixtureOptions()};
  for (const PolicyCase& policy : MakePolicyCases()) {
    ExpectEqualsOracle(fixture, policy,
                       {.num_prompt = 60, .num_decode = 4, .chunk = 3, .content_end = 55});
  }
}

// bf16 rounds what the oracle rounds too; where f32 and double fall on two sides of a rounding
// boundary, one element differs by 2^-8 of itself.
TEST(MaskOracleTest, HoldsForABf16Cache) {
  KvFixtureOptions options;
  options.dtype = kernels::KvDType::kBF16;
  KvFixture fixture(options);
  for (const PolicyCase& policy : MakePolicyCases()) {
    SCOPED_TRACE(policy.name);
    OracleRun run = RunSequence(fixture, policy, {.num_prompt = 60, .num_decode = 10, .chunk = 9});
    run.input.kv_dtype = kernels::KvDType::kBF16;
    EXPECT_LE(Distance(fixture, run), 5e-3);
  }
}

// The same for int8, where a rounding boundary is worth a whole step, 1/127 of a head's largest
// element. Without its own rounding the oracle is several times as far away.
TEST(MaskOracleTest, HoldsForAnInt8Cache) {
  KvFixtureOptions options;
  options.dtype = kernels::KvDType::kInt8;
  KvFixture fixture(options);
  for (const PolicyCase& policy : MakePolicyCases()) {
    SCOPED_TRACE(policy.name);
    OracleRun run = RunSequence(fixture, policy, {.num_prompt = 60, .num_decode = 10, .chunk = 9});
    const double unrounded = Distance(fixture, run);
    run.input.kv_dtype = kernels::KvDType::kInt8;
    const double rounded = Distance(fixture, run);
    EXPECT_LE(rounded, 2e-2);
    EXPECT_LE(rounded, 0.25 * unrounded);
  }
}

TEST(MaskOracleTest, NoticesOneSlotTooManyInOneHead) {
  KvFixture fixture{KvFixtureOptions()};
  OracleRun run = RunSequence(fixture, {"fastkv", MakeKvSpec("fastkv", 250'000, 1'000'000)},
                              {.num_prompt = 60, .num_decode = 1, .chunk = 16});
  std::vector<int32_t>& seen = run.input.seen.front().front().back();
  int32_t evicted = 0;
  while (std::binary_search(seen.begin(), seen.end(), evicted)) {
    ++evicted;
  }
  seen.insert(std::upper_bound(seen.begin(), seen.end(), evicted), evicted);
  EXPECT_GT(Distance(fixture, run), 10 * kMaskTolerance);
}

}  // namespace
}  // namespace headroom::testing
