// The mask oracle of every policy on a prompt of 2,000 tokens.
#include <gtest/gtest.h>

#include "tests/support/mask_oracle.h"

namespace headroom::testing {
namespace {

TEST(MaskOracleLongTest, HoldsForALongPrompt) {
  KvFixtureOptions options;
  options.shape = {.num_layers = 3,
                   .hidden_size = 8,
                   .intermediate_size = 8,
                   .num_heads = 2,
                   .num_kv_heads = 2,
                   .head_dim = 4,
                   .vocab_size = 32};
  KvFixture fixture(options);
  for (const PolicyCase& policy : MakePolicyCases()) {
    ExpectEqualsOracle(fixture, policy, {.num_prompt = 2000, .num_decode = 3, .chunk = 512});
  }
}

}  // namespace
}  // namespace headroom::testing
