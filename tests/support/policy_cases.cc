#include "tests/support/policy_cases.h"

#include <utility>

#include "base/philox.h"
#include "tests/support/kv_fixture.h"

namespace headroom::testing {
namespace {

using engine::KvDecode;
using engine::KvPolicySpec;

KvPolicySpec Retention(const std::string& policy, int64_t retention_ppm) {
  return MakeKvSpec(policy, retention_ppm, 1'000'000);
}

KvPolicySpec Recovery(int64_t recovery_ppm, int64_t fraction_ppm, bool all_rows) {
  KvPolicySpec spec = MakeKvSpec("fastgen", 1'000'000, 1'000'000);
  spec.recovery_ppm = recovery_ppm;
  spec.options.fraction_ppm = fraction_ppm;
  spec.options.all_rows = all_rows;
  return spec;
}

}  // namespace

std::vector<PolicyCase> MakePolicyCases() {
  std::vector<PolicyCase> cases = {
      {"full", MakeKvSpec("full", 1'000'000, 1'000'000)},
      {"full with tsp", MakeKvSpec("full", 1'000'000, 300'000)},
      {"streaming", Retention("streaming", 300'000)},
      {"streaming typed", MakeKvSpec("streaming", 300'000, 1'000'000, KvDecode::kTyped)},
      {"h2o", Retention("h2o", 300'000)},
      {"h2o typed", MakeKvSpec("h2o", 300'000, 1'000'000, KvDecode::kTyped)},
      {"scissorhands", Retention("scissorhands", 300'000)},
      {"scissorhands typed", MakeKvSpec("scissorhands", 400'000, 1'000'000, KvDecode::kTyped)},
      {"snapkv", Retention("snapkv", 250'000)},
      {"adakv", Retention("adakv", 250'000)},
      {"pyramidinfer", Retention("pyramidinfer", 350'000)},
      {"gemfilter", Retention("gemfilter", 400'000)},
      {"fastkv", MakeKvSpec("fastkv", 250'000, 1'000'000)},
      {"fastkv with tsp", MakeKvSpec("fastkv", 200'000, 400'000)},
      {"fastgen", Recovery(600'000, 100'000, false)},
      {"fastgen on all rows", Recovery(700'000, 150'000, true)},
      {"adaptive", Retention("adaptive", 300'000)},
      {"adaptive with tsp", MakeKvSpec("adaptive", 250'000, 500'000)},
      {"adaptive typed", MakeKvSpec("adaptive", 250'000, 1'000'000, KvDecode::kTyped)},
      {"adaptive typed with tsp", MakeKvSpec("adaptive", 250'000, 600'000, KvDecode::kTyped)},
      {"random", Retention("random", 300'000)},
      {"ragged", MakeKvSpec("ragged", 1'000'000, 1'000'000)},
      {"ragged with tsp", MakeKvSpec("ragged", 1'000'000, 500'000)}};
  KvPolicySpec spec = Retention("h2o", 250'000);
  spec.options.count_normalised = true;
  spec.options.recent_share_ppm = 0;
  spec.sink_tokens = 0;
  cases.push_back({"h2o with nothing protected", spec});
  spec = Retention("adakv", 200'000);
  spec.options.alpha_ppm = 0;
  cases.push_back({"adakv with nothing safe", spec});
  spec = Retention("adaptive", 350'000);
  spec.scope = engine::KvScope::kLayer;
  spec.options.dense_share_ppm = 700'000;
  spec.options.local_share_ppm = 500'000;
  cases.push_back({"adaptive, layer by layer", spec});
  spec = MakeKvSpec("adaptive", 500'000, 700'000);
  spec.mode = engine::KvMode::kBoth;
  cases.push_back({"adaptive, no more than needed", spec});
  spec.mode = engine::KvMode::kRecovery;
  spec.retention_ppm = spec.tsp_ppm = 1'000'000;
  cases.push_back({"adaptive by need", spec});
  spec = Retention("adaptive", 600'000);
  spec.head_check = true;
  spec.recovery_ppm = 800'000;
  spec.options.local_share_ppm = 500'000;
  cases.push_back({"adaptive with checked heads", spec});
  spec.tsp_ppm = 700'000;
  spec.decode = KvDecode::kTyped;
  cases.push_back({"adaptive with checked heads, tsp and typed", spec});
  spec = Retention("pyramidinfer", 300'000);
  spec.options.flat = true;
  cases.push_back({"pyramidinfer, flat", spec});
  spec = Retention("gemfilter", 300'000);
  spec.options.filter_layer = 2;
  spec.sink_tokens = 0;
  spec.window_raw = true;
  spec.window = 1;
  cases.push_back({"gemfilter at layer 2", spec});
  spec = Recovery(500'000, 100'000, false);
  spec.decode = KvDecode::kTyped;
  cases.push_back({"fastgen typed", spec});
  spec = Recovery(50'000, 50'000, false);
  spec.sink_tokens = 0;
  cases.push_back({"fastgen with little", spec});
  return cases;
}

std::vector<PolicyCase> MakeKeepAllCases() {
  std::vector<PolicyCase> cases;
  for (PolicyCase& made : MakePolicyCases()) {
    if (made.spec.policy == "ragged" || made.spec.mode != engine::KvMode::kBudget) {
      continue;
    }
    made.spec.retention_ppm = made.spec.tsp_ppm = 1'000'000;
    // A mass of all but one part in a million is found in no smaller set of a short prompt.
    made.spec.recovery_ppm = 999'999;
    made.spec.options.fraction_ppm = 50'000;
    cases.push_back(std::move(made));
  }
  return cases;
}

std::shared_ptr<const std::vector<engine::TokenClass>> RandomClasses(int32_t count, uint64_t seed) {
  const Philox random(seed, 78);
  auto classes = std::make_shared<std::vector<engine::TokenClass>>();
  for (int32_t i = 0; i < count; ++i) {
    const double draw = random.Uniform(static_cast<uint64_t>(i));
    classes->push_back(draw < 0.1   ? engine::TokenClass::kSpecial
                       : draw < 0.3 ? engine::TokenClass::kPunctuation
                                    : engine::TokenClass::kOther);
  }
  return classes;
}

}  // namespace headroom::testing
