// Any eviction equals the full cache plus a mask over the evicted (layer, head, position): runs a
// sequence and compares it to an independent forward in double precision that has that mask.
#pragma once

#include <cstdint>

#include "tests/support/forward_driver.h"
#include "tests/support/kv_fixture.h"
#include "tests/support/oracle_forward.h"
#include "tests/support/policy_cases.h"

namespace headroom::testing {

// On logits of order one: the reference backend keeps activations and KV in f32, sums in double.
inline constexpr double kMaskTolerance = 1e-5;

struct OracleRun {
  DrivenSequence sequence;
  OracleInput input;
};

// What one run is.
struct OracleCase {
  int32_t num_prompt = 0;
  int32_t num_decode = 0;
  int32_t chunk = 0;
  int32_t content_end = -1;
};

// Runs one sequence to its end and describes to the oracle what it kept.
OracleRun RunSequence(KvFixture& fixture, const PolicyCase& policy, const OracleCase& test);

// The largest difference of any logit.
double Distance(const KvFixture& fixture, const OracleRun& run);

void ExpectEqualsOracle(KvFixture& fixture, const PolicyCase& policy, const OracleCase& test);

}  // namespace headroom::testing
