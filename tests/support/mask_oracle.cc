#include "tests/support/mask_oracle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace headroom::testing {
namespace {

// Which prompt rows stop where; a prompt that is started afresh is the oracle's prompt.
void DescribePrompt(const engine::KvCache& cache, const DrivenSequence& sequence,
                    OracleInput& input) {
  input.tokens = sequence.prompt;
  const std::span<const engine::PrefillPhase> phases = cache.phases(sequence.handle);
  for (int32_t phase = 1; phase < static_cast<int32_t>(phases.size()); ++phase) {
    const std::span<const int32_t> rows = cache.phase_rows(sequence.handle, phase);
    if (cache.starts_afresh(sequence.handle, phase)) {
      input.tokens.clear();
      for (const int32_t row : rows) {
        input.tokens.push_back(sequence.prompt[static_cast<size_t>(row)]);
      }
      continue;
    }
    input.drops.push_back({.layer = phases[static_cast<size_t>(phase)].layer_begin,
                           .rows = {rows.begin(), rows.end()}});
  }
  input.num_prompt = static_cast<int32_t>(input.tokens.size());
  input.tokens.insert(input.tokens.end(), sequence.feed.begin(), sequence.feed.end());
}

}  // namespace

OracleRun RunSequence(KvFixture& fixture, const PolicyCase& policy, const OracleCase& test) {
  OracleRun run;
  const int32_t vocab = fixture.loaded().config.vocab_size;
  DrivenSequence& sequence = run.sequence;
  sequence.prompt = RandomTokens(test.num_prompt, vocab, 5);
  sequence.feed = RandomTokens(test.num_decode, vocab, 6);
  sequence.classes = RandomClasses(test.num_prompt, 7);
  sequence.spec = policy.spec;
  sequence.chunk = test.chunk;
  sequence.content_end = test.content_end;
  ForwardDriver driver(fixture.model(), fixture.cache());
  driver.Open(sequence);
  driver.Run({&sequence});
  DescribePrompt(fixture.cache(), sequence, run.input);
  run.input.seen.assign(sequence.kept.begin() + 1, sequence.kept.end());
  driver.Close(sequence);
  EXPECT_EQ(fixture.cache().pool().num_free(), fixture.cache().pool().num_pages());
  return run;
}

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

void ExpectEqualsOracle(KvFixture& fixture, const PolicyCase& policy, const OracleCase& test) {
  SCOPED_TRACE(fmt::format("{}, N {}", policy.name, test.num_prompt));
  const OracleRun run = RunSequence(fixture, policy, test);
  EXPECT_LE(Distance(fixture, run), kMaskTolerance);
}

}  // namespace headroom::testing
