// The mask oracle of every policy on a prompt of 2,000 tokens.
#include <gtest/gtest.h>

#include "tests/support/mask_oracle.h"

namespace headroom::testing {
namespace {

class MaskOracleLongTest : public ::testing::TestWithParam<int32_t> {};

TEST_P(MaskOracleLongTest, HoldsForALongPrompt) {
  const int32_t group = GetParam();
  KvFixtureOptions options;
  options.shape = {.num_layers = 3,
                   .hidden_size = 8,
                   .intermediate_size = 8,
                   .num_heads = 2 * group,
                   .num_kv_heads = 2,
                   .head_dim = 4,
                   .vocab_size = 32};
  KvFixture fixture(options);
  for (const PolicyCase& policy : MakePolicyCases()) {
    SCOPED_TRACE(policy.spec.policy);
    ExpectEqualsOracle(fixture, policy, {.num_prompt = 2000, .num_decode = 3, .chunk = 512});
  }
}

INSTANTIATE_TEST_SUITE_P(GroupSizes, MaskOracleLongTest, ::testing::Values(1, 3, 4, 8),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace headroom::testing
