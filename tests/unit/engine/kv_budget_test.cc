// Counts of a budget are exact integers, whatever floating point would have made of the ratio.
#include <gtest/gtest.h>

#include <cstdint>

#include "engine/kv/budget.h"

namespace headroom::engine {
namespace {

struct CountCase {
  int64_t ppm;
  int64_t num_tokens;
  int64_t count;
};

class KvBudgetTest : public ::testing::TestWithParam<CountCase> {};

TEST_P(KvBudgetTest, RatiosGiveExactCounts) {
  const CountCase& of = GetParam();
  KvPolicySpec spec;
  spec.retention_ppm = of.ppm;
  spec.tsp_ppm = of.ppm;
  EXPECT_EQ(RetentionEntries(spec, of.num_tokens), of.count);
  EXPECT_EQ(TspRows(spec, of.num_tokens), of.count);
}

// f32 gives one less in the first three (0.53 * 100 = 52.99..), f64 in the next two.
INSTANTIATE_TEST_SUITE_P(Table, KvBudgetTest,
                         ::testing::Values(CountCase{530'000, 100, 53},
                                           CountCase{251'000, 1000, 251},
                                           CountCase{130'000, 7500, 975},
                                           CountCase{290'000, 100, 29}, CountCase{570'000, 100, 57},
                                           CountCase{999'999, 1000, 999}, CountCase{1, 999'999, 0},
                                           CountCase{1, 1'000'000, 1},
                                           CountCase{kPpm, 8192, 8192}));

}  // namespace
}  // namespace headroom::engine
