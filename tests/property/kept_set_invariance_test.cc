// What a request keeps, and every logit, depends on the request alone: not on how its prompt is cut
// into chunks, nor on who shares its batches. Exact, for every number of query heads to a KV head.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "tests/support/forward_driver.h"
#include "tests/support/kv_fixture.h"
#include "tests/support/policy_cases.h"

namespace headroom::testing {
namespace {

using engine::KvDecode;

// One sequence of every policy, of different lengths, some with a template suffix.
std::vector<DrivenSequence> MixedSequences(int32_t vocab) {
  std::vector<DrivenSequence> sequences;
  const std::vector<PolicyCase> policies = MakePolicyCases();
  for (size_t i = 0; i < policies.size(); ++i) {
    const auto num_prompt = static_cast<int32_t>(60 + 29 * i % 97);
    DrivenSequence sequence;
    sequence.prompt = RandomTokens(num_prompt, vocab, 100 + i);
    sequence.feed = RandomTokens(20, vocab, 200 + i);
    sequence.classes = RandomClasses(num_prompt, 300 + i);
    sequence.spec = policies[i].spec;
    sequence.content_end = i % 3 == 0 ? num_prompt - 5 : -1;
    sequences.push_back(sequence);
  }
  return sequences;
}

// The dtype of the cache and the query heads to a KV head.
using CacheCase = std::tuple<kernels::KvDType, int32_t>;

class KeptSetInvarianceTest : public ::testing::TestWithParam<CacheCase> {
 protected:
  KvFixtureOptions Options() const {
    const auto [dtype, group_size] = GetParam();
    KvFixtureOptions options;
    options.shape.num_heads = group_size * options.shape.num_kv_heads;
    options.dtype = dtype;
    return options;
  }
};

void RunAlone(KvFixture& fixture, DrivenSequence& sequence) {
  ForwardDriver driver(fixture.model(), fixture.cache());
  driver.Open(sequence);
  driver.Run({&sequence});
  driver.Close(sequence);
}

TEST_P(KeptSetInvarianceTest, ChunkSizeChangesNothing) {
  KvFixture fixture(Options());
  for (const DrivenSequence& made : MixedSequences(fixture.loaded().config.vocab_size)) {
    DrivenSequence whole = made;
    whole.chunk = static_cast<int32_t>(made.prompt.size());
    RunAlone(fixture, whole);
    for (const int32_t chunk : {1, 7, 64}) {
      SCOPED_TRACE(fmt::format("{}, chunk {}", made.spec.policy, chunk));
      DrivenSequence cut = made;
      cut.chunk = chunk;
      RunAlone(fixture, cut);
      EXPECT_EQ(cut.kept, whole.kept);
      EXPECT_EQ(cut.logits, whole.logits);
    }
  }
}

TEST_P(KeptSetInvarianceTest, BatchMatesChangeNothing) {
  KvFixture fixture(Options());
  std::vector<DrivenSequence> together = MixedSequences(fixture.loaded().config.vocab_size);
  ForwardDriver driver(fixture.model(), fixture.cache());
  std::vector<DrivenSequence*> batch;
  const std::vector<int32_t> chunks = {7, 1, 64, 16, 5, 157, 31};
  for (size_t i = 0; i < together.size(); ++i) {
    together[i].chunk = chunks[i % chunks.size()];
    driver.Open(together[i]);
    batch.push_back(&together[i]);
  }
  driver.Run(batch);
  for (DrivenSequence& sequence : together) {
    driver.Close(sequence);
  }
  EXPECT_EQ(fixture.cache().pool().num_free(), fixture.cache().pool().num_pages());
  std::vector<DrivenSequence> alone = MixedSequences(fixture.loaded().config.vocab_size);
  for (size_t i = 0; i < alone.size(); ++i) {
    SCOPED_TRACE(fmt::format("{}, sequence {}", alone[i].spec.policy, i));
    RunAlone(fixture, alone[i]);
    EXPECT_EQ(together[i].kept, alone[i].kept);
    EXPECT_EQ(together[i].logits, alone[i].logits);
  }
}

TEST_P(KeptSetInvarianceTest, AnEarlierRequestLeavesNothingBehind) {
  KvFixture used(Options());
  std::vector<DrivenSequence> sequences = MixedSequences(used.loaded().config.vocab_size);
  for (DrivenSequence& sequence : sequences) {
    RunAlone(used, sequence);
  }
  for (DrivenSequence sequence : MixedSequences(used.loaded().config.vocab_size)) {
    KvFixture fresh(Options());
    DrivenSequence again = sequence;
    RunAlone(used, again);
    RunAlone(fresh, sequence);
    EXPECT_EQ(again.kept, sequence.kept);
    EXPECT_EQ(again.logits, sequence.logits);
  }
}

TEST_P(KeptSetInvarianceTest, RatiosOfOneAreTheFullPathExactly) {
  KvFixture fixture(Options());
  DrivenSequence full;
  full.prompt = RandomTokens(90, fixture.loaded().config.vocab_size, 1);
  full.feed = RandomTokens(20, fixture.loaded().config.vocab_size, 2);
  full.spec = MakeKvSpec("full", 1'000'000, 1'000'000);
  RunAlone(fixture, full);
  for (const PolicyCase& policy : MakeKeepAllCases()) {
    SCOPED_TRACE(policy.name);
    DrivenSequence other;
    other.prompt = full.prompt;
    other.feed = full.feed;
    other.spec = policy.spec;
    RunAlone(fixture, other);
    EXPECT_EQ(other.kept, full.kept);
    EXPECT_EQ(other.logits, full.logits);
  }
}

INSTANTIATE_TEST_SUITE_P(KvDTypesAndGroups, KeptSetInvarianceTest,
                         ::testing::Combine(::testing::Values(kernels::KvDType::kF32,
                                                              kernels::KvDType::kBF16,
                                                              kernels::KvDType::kInt8),
                                            ::testing::Values(1, 3, 4, 8)),
                         [](const ::testing::TestParamInfo<CacheCase>& tested) {
                           return fmt::format("{}_group_{}", KvDTypeName(std::get<0>(tested.param)),
                                              std::get<1>(tested.param));
                         });

}  // namespace
}  // namespace headroom::testing
