// Policies that must come out equal: bit for bit, kept sets and logits.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/forward_driver.h"
#include "tests/support/kv_fixture.h"
#include "tests/support/policy_cases.h"
#include "tests/support/staged_policy.h"

namespace headroom::testing {
namespace {

using engine::KvPolicySpec;

constexpr int32_t kNumPrompt = 90;
constexpr int32_t kNumLayers = 4;

KvFixtureOptions Options(int32_t tsp_layer = 1) {
  KvFixtureOptions options;
  options.shape.num_layers = kNumLayers;
  options.shape.num_heads = 6;
  options.tsp_layer = tsp_layer;
  return options;
}

DrivenSequence RunAlone(KvFixture& fixture, const KvPolicySpec& spec, int32_t chunk = 16) {
  const int32_t vocab = fixture.loaded().config.vocab_size;
  DrivenSequence sequence;
  sequence.prompt = RandomTokens(kNumPrompt, vocab, 1);
  sequence.feed = RandomTokens(20, vocab, 2);
  sequence.classes = RandomClasses(kNumPrompt, 3);
  sequence.spec = spec;
  sequence.chunk = chunk;
  const int32_t num_free = fixture.cache().pool().num_free();
  ForwardDriver driver(fixture.model(), fixture.cache());
  driver.Open(sequence);
  driver.Run({&sequence});
  driver.Close(sequence);
  EXPECT_EQ(fixture.cache().pool().num_free(), num_free);
  return sequence;
}

void ExpectSame(const DrivenSequence& got, const DrivenSequence& wanted) {
  EXPECT_EQ(got.kept, wanted.kept);
  EXPECT_EQ(got.logits, wanted.logits);
}

DrivenSequence RunFull(KvFixture& fixture) {
  return RunAlone(fixture, MakeKvSpec("full", 1'000'000, 1'000'000));
}

TEST(PolicyEquivalenceTest, FastKvAtTheLastLayerKeepsWhatSnapKvKeeps) {
  KvFixture fixture(Options(kNumLayers - 1));
  const DrivenSequence snapkv = RunAlone(fixture, MakeKvSpec("snapkv", 200'000, 1'000'000));
  ExpectSame(RunAlone(fixture, MakeKvSpec("fastkv", 200'000, 1'000'000)), snapkv);
  // With rows dropped at the last layer, too: it chooses from all of them.
  EXPECT_EQ(RunAlone(fixture, MakeKvSpec("fastkv", 200'000, 400'000)).kept.front(),
            snapkv.kept.front());
}

TEST(PolicyEquivalenceTest, AdaKvWithEverythingSafeIsUniform) {
  KvFixture fixture(Options());
  KvPolicySpec spec = MakeKvSpec("adakv", 200'000, 1'000'000);
  spec.options.alpha_ppm = 1'000'000;
  ExpectSame(RunAlone(fixture, spec), RunAlone(fixture, MakeKvSpec("snapkv", 200'000, 1'000'000)));
}

TEST(PolicyEquivalenceTest, AdaKvPoolsHoldTheSameAsUniformBudgetsTogether) {
  KvFixture fixture(Options());
  for (const int64_t alpha_ppm : {0, 200'000, 900'000}) {
    KvPolicySpec spec = MakeKvSpec("adakv", 230'000, 1'000'000);
    spec.options.alpha_ppm = alpha_ppm;
    const DrivenSequence adakv = RunAlone(fixture, spec);
    bool differ = false;
    for (const auto& layer : adakv.kept.front()) {
      EXPECT_EQ(layer[0].size() + layer[1].size(), 2u * 20u);  // floor(0.23 * 90)
      differ |= layer[0].size() != layer[1].size();
      const size_t safe = std::max<size_t>(6, static_cast<size_t>(alpha_ppm) * 20 / 1'000'000);
      EXPECT_GE(std::min(layer[0].size(), layer[1].size()), safe);
    }
    EXPECT_TRUE(differ || alpha_ppm == 900'000);
  }
}

TEST(PolicyEquivalenceTest, GemFilterWithAllTokensIsFull) {
  KvFixture fixture(Options());
  const DrivenSequence full = RunFull(fixture);
  ExpectSame(RunAlone(fixture, MakeKvSpec("gemfilter", 1'000'000, 1'000'000)), full);
  KvPolicySpec spec = MakeKvSpec("gemfilter", 100'000, 1'000'000);
  spec.window = kNumPrompt;  // all rows are protected
  ExpectSame(RunAlone(fixture, spec), full);
}

TEST(PolicyEquivalenceTest, StartingAfreshWithAllTokensIsFull) {
  for (const int32_t tsp_layer : {0, 1, kNumLayers - 1}) {
    KvFixture fixture(Options(tsp_layer));
    fixture.policies().Add(MakeAgainPolicy());
    for (const int32_t chunk : {1, 7, 64, kNumPrompt}) {
      ExpectSame(RunAlone(fixture, MakeKvSpec("again", 1'000'000, 1'000'000), chunk),
                 RunFull(fixture));
    }
  }
}

TEST(PolicyEquivalenceTest, GemFilterIsFullOnTheChosenTokens) {
  KvFixture fixture(Options());
  const DrivenSequence filtered = RunAlone(fixture, MakeKvSpec("gemfilter", 300'000, 1'000'000));
  DrivenSequence sequence;
  ForwardDriver driver(fixture.model(), fixture.cache());
  DrivenSequence again;
  again.prompt = filtered.prompt;
  again.spec = filtered.spec;
  driver.Open(again);
  driver.Prefill(again);
  for (const int32_t row : fixture.cache().phase_rows(again.handle, 1)) {
    sequence.prompt.push_back(again.prompt[static_cast<size_t>(row)]);
  }
  driver.Close(again);
  ASSERT_EQ(sequence.prompt.size(), 27u);
  sequence.feed = filtered.feed;
  sequence.spec = MakeKvSpec("full", 1'000'000, 1'000'000);
  driver.Open(sequence);
  driver.Run({&sequence});
  driver.Close(sequence);
  ExpectSame(filtered, sequence);
}

TEST(PolicyEquivalenceTest, StreamingWithAWindowOfThePromptIsFull) {
  KvFixture fixture(Options());
  KvPolicySpec spec = MakeKvSpec("streaming", 100'000, 1'000'000);
  spec.window = kNumPrompt;
  ExpectSame(RunAlone(fixture, spec), RunFull(fixture));
}

TEST(PolicyEquivalenceTest, AStairOfPhasesThatDropNothingIsFull) {
  KvFixture fixture(Options());
  fixture.policies().Add(MakeStairsPolicy());
  for (const int32_t chunk : {1, 7, 64, kNumPrompt}) {
    ExpectSame(RunAlone(fixture, MakeKvSpec("stairs", 1'000'000, 1'000'000), chunk),
               RunFull(fixture));
  }
}

// A flat schedule drops rows once, at layer floor(L / 4), and keeps all that is left above it: TSP
// alone at that layer, with one set for all heads of the layers up to it.
TEST(PolicyEquivalenceTest, PyramidInferWithAFlatScheduleIsFullOnTheRowsThatGoOn) {
  KvFixture fixture(Options(kNumLayers / 4));
  KvPolicySpec spec = MakeKvSpec("pyramidinfer", 300'000, 1'000'000);
  spec.options.flat = true;
  const DrivenSequence flat = RunAlone(fixture, spec);
  const DrivenSequence full = RunAlone(fixture, MakeKvSpec("full", 1'000'000, 300'000));
  EXPECT_EQ(flat.logits.front(), full.logits.front());
  for (size_t layer = kNumLayers / 4 + 1; layer < kNumLayers; ++layer) {
    EXPECT_EQ(flat.kept.front()[layer], full.kept.front()[layer]);
  }
  spec.retention_ppm = 1'000'000;
  ExpectSame(RunAlone(fixture, spec), RunFull(fixture));
}

// Opening from a source is a prefill that reads nothing.
class OpenFromTest : public ::testing::TestWithParam<kernels::KvDType> {
 protected:
  KvFixtureOptions DTypeOptions() {
    KvFixtureOptions options = Options();
    options.dtype = GetParam();
    return options;
  }
};

int64_t NumEntries(const DrivenSequence& sequence) {
  int64_t entries = 0;
  for (const auto& layer : sequence.kept.front()) {
    for (const auto& head : layer) {
      entries += static_cast<int64_t>(head.size());
    }
  }
  return entries;
}

std::vector<KvPolicySpec> SpecsOfOnePhase() {
  std::vector<KvPolicySpec> specs;
  for (const PolicyCase& policy : MakePolicyCases()) {
    if (policy.spec.tsp_ppm == 1'000'000 && policy.spec.policy != "gemfilter" &&
        policy.spec.policy != "pyramidinfer") {
      specs.push_back(policy.spec);
    }
  }
  return specs;
}

TEST_P(OpenFromTest, EqualsAFreshPrefillBitForBit) {
  KvFixture fixture(DTypeOptions());
  const std::vector<KvPolicySpec> specs = SpecsOfOnePhase();
  DrivenSequence source;
  source.prompt = RandomTokens(kNumPrompt, fixture.loaded().config.vocab_size, 1);
  source.classes = RandomClasses(kNumPrompt, 3);
  source.chunk = 7;
  ForwardDriver driver(fixture.model(), fixture.cache());
  source.handle = fixture.cache().OpenSource(
      specs, {.num_tokens = kNumPrompt, .content_end = kNumPrompt, .classes = source.classes});
  driver.Prefill(source);
  for (int repeat = 0; repeat < 2; ++repeat) {
    for (const KvPolicySpec& spec : specs) {
      SCOPED_TRACE(spec.policy);
      const DrivenSequence fresh = RunAlone(fixture, spec);
      const StatusOr<int32_t> handle = fixture.cache().OpenFrom(source.handle, spec);
      ASSERT_TRUE(handle.ok()) << StatusMessage(handle.status());
      DrivenSequence opened;
      opened.prompt = source.prompt;
      opened.feed = fresh.feed;
      opened.handle = *handle;
      opened.decoding = true;
      EXPECT_EQ(driver.Kept(opened), fresh.kept.front());
      driver.Run({&opened});
      EXPECT_EQ(fixture.cache().receipt(*handle).entries, NumEntries(fresh));
      driver.Close(opened);
      EXPECT_EQ(opened.logits,
                std::vector<std::vector<float>>(fresh.logits.begin() + 1, fresh.logits.end()));
    }
  }
  driver.Close(source);
  EXPECT_EQ(fixture.cache().pool().num_free(), fixture.cache().pool().num_pages());
}

TEST_P(OpenFromTest, OutlivesItsSource) {
  KvFixture fixture(DTypeOptions());
  const KvPolicySpec spec = MakeKvSpec("snapkv", 300'000, 1'000'000);
  const DrivenSequence fresh = RunAlone(fixture, spec);
  DrivenSequence source;
  source.prompt = fresh.prompt;
  source.handle = fixture.cache().OpenSource(std::vector<KvPolicySpec>{spec},
                                             {.num_tokens = kNumPrompt, .content_end = kNumPrompt});
  ForwardDriver driver(fixture.model(), fixture.cache());
  driver.Prefill(source);
  DrivenSequence opened;
  opened.prompt = fresh.prompt;
  opened.feed = fresh.feed;
  opened.decoding = true;
  opened.handle = fixture.cache().OpenFrom(source.handle, spec).value();
  driver.Close(source);
  driver.Run({&opened});
  driver.Close(opened);
  EXPECT_EQ(opened.logits,
            std::vector<std::vector<float>>(fresh.logits.begin() + 1, fresh.logits.end()));
}

TEST_P(OpenFromTest, RefusesWhatTheSourceCannotGive) {
  KvFixture fixture(DTypeOptions());
  DrivenSequence source;
  source.prompt = RandomTokens(kNumPrompt, fixture.loaded().config.vocab_size, 1);
  source.handle = fixture.cache().OpenSource(
      std::vector<KvPolicySpec>{MakeKvSpec("snapkv", 300'000, 1'000'000)},
      {.num_tokens = kNumPrompt, .content_end = kNumPrompt});
  ForwardDriver driver(fixture.model(), fixture.cache());
  driver.Prefill(source);
  const auto refusal = [&](const KvPolicySpec& spec) {
    const StatusOr<int32_t> handle = fixture.cache().OpenFrom(source.handle, spec);
    EXPECT_EQ(handle.status().code(), StatusCode::kInvalidArgument) << spec.policy;
    return StatusMessage(handle.status());
  };
  for (const char* policy : {"pyramidinfer", "gemfilter"}) {
    EXPECT_EQ(refusal(MakeKvSpec(policy, 300'000, 1'000'000)),
              std::string("policy ") + policy +
                  " chooses rows while it reads: its prompt has to be read under it");
  }
  refusal(MakeKvSpec("fastkv", 300'000, 400'000));
  EXPECT_EQ(refusal(MakeKvSpec("h2o", 300'000, 1'000'000)),
            "policy h2o scores with column sums that the source did not keep");
  KvPolicySpec spec = MakeKvSpec("snapkv", 300'000, 1'000'000);
  spec.window = 9;
  EXPECT_EQ(refusal(spec), "policy snapkv scores with 9 rows of queries; the source kept 4");
  driver.Close(source);
}

INSTANTIATE_TEST_SUITE_P(KvDTypes, OpenFromTest,
                         ::testing::Values(kernels::KvDType::kF32, kernels::KvDType::kBF16,
                                           kernels::KvDType::kInt8));

}  // namespace
}  // namespace headroom::testing
