// Modes of `adaptive`, and which rows TSP lets through for the heads above its layer.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/philox.h"
#include "engine/kv/policies/adaptive_tokens.h"
#include "tests/support/adaptive_run.h"
#include "tests/support/kv_fixture.h"
#include "tests/support/test_map.h"

namespace headroom::engine {
namespace {

using testing::IsSubset;
using testing::KeptSets;
using testing::kShortSettings;
using testing::MakeKvSpec;
using testing::MakePolicy;
using testing::MakePrompt;
using testing::MakeTestMap;
using testing::MakeUniformMap;
using testing::NumEntries;
using testing::Prefilled;
using testing::RunPolicy;
using testing::Scores;

constexpr KvModelShape kShape = testing::kAdaptiveShape;
constexpr int32_t kTokens = testing::kAdaptiveTokens;

TEST(AdaptiveModesTest, ModeRecoveryGivesEveryHeadTheBudgetOfItsTypeWhateverTheRetention) {
  HeadMap map = MakeTestMap(6, 3, 1);
  const PromptInfo prompt = MakePrompt(kTokens, 6);
  const PromptTokens tokens(prompt, 2, 6);
  const Scores scores(7, kTokens);
  KvPolicySpec spec = MakeKvSpec("adaptive", kPpm, kPpm);
  spec.mode = KvMode::kRecovery;
  const Prefilled all = RunPolicy(*MakePolicy(map), spec, prompt, scores);
  spec.retention_ppm = 50'000;
  const Prefilled again = RunPolicy(*MakePolicy(map), spec, prompt, scores);
  EXPECT_EQ(all.kept, again.kept);
  int64_t heavy = 0;
  for (int32_t layer = 0; layer < 6; ++layer) {
    for (int32_t head = 0; head < 3; ++head) {
      const HeadEntry& entry = map.head(layer, head);
      const auto kept = static_cast<int64_t>(
          all.kept[static_cast<size_t>(layer)][static_cast<size_t>(head)].size());
      const bool sure = entry.confidence_ppm >= 800'000 && !entry.borderline;
      if (entry.type == HeadType::kDense) {
        EXPECT_EQ(kept, kTokens);
      } else if (entry.type == HeadType::kHeavy || !sure) {
        const int64_t budget = entry.budget_tokens + entry.budget_ppm * kTokens / kPpm;
        EXPECT_EQ(kept,
                  std::max<int64_t>(budget, tokens.num_mandatory() + kShortSettings.floor_entries));
        ++heavy;
      } else if (entry.type == HeadType::kSpecial) {
        EXPECT_EQ(kept, tokens.num_mandatory());
      } else {
        EXPECT_GT(kept, tokens.num_mandatory());
      }
    }
  }
  EXPECT_GT(heavy, 2);
}

TEST(AdaptiveModesTest, ModeBothTakesTheSmallerAndNests) {
  const std::unique_ptr<KvPolicy> policy = MakePolicy(MakeTestMap(6, 3, 1));
  const PromptInfo prompt = MakePrompt(kTokens, 6);
  const Scores scores(7, kTokens);
  KvPolicySpec spec = MakeKvSpec("adaptive", kPpm, kPpm);
  spec.mode = KvMode::kRecovery;
  const int64_t needed = NumEntries(RunPolicy(*policy, spec, prompt, scores).kept);
  KeptSets last;
  for (int64_t rho = 200'000; rho <= kPpm; rho += 10'000) {
    spec.mode = KvMode::kBudget;
    spec.retention_ppm = rho;
    const int64_t budget = NumEntries(RunPolicy(*policy, spec, prompt, scores).kept);
    spec.mode = KvMode::kBoth;
    const KeptSets kept = RunPolicy(*policy, spec, prompt, scores).kept;
    EXPECT_EQ(NumEntries(kept), std::min(budget, needed)) << rho;
    for (size_t layer = 0; layer < last.size(); ++layer) {
      for (size_t head = 0; head < last[layer].size(); ++head) {
        ASSERT_TRUE(IsSubset(last[layer][head], kept[layer][head])) << rho;
      }
    }
    last = kept;
  }
  spec.recovery_ppm = 900'000;
  EXPECT_EQ(StatusMessage(policy->Validate(spec)),
            "kv_recovery: got 0.9; budgets of the head map are for 0.95, derive a map for another "
            "target");
}

// The rows that go on, written out: classes and windows that later heads are there for.
TEST(ProtectedRowsTest, AreTheOnesThatLaterHeadsNeed) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Philox random(seed, 6);
    auto below = [&random, draw = uint64_t{0}](int32_t limit) mutable {
      return static_cast<int32_t>(random.Uniform(draw++) * limit);
    };
    const int32_t num_tokens = 1 + below(120);
    const PromptInfo prompt = MakePrompt(num_tokens, seed);
    const PromptTokens tokens(prompt, below(5), 1 + below(9));
    const LaterHeads later = {.window = below(80), .punctuation = below(2) == 0};
    const int32_t wanted_rows = below(num_tokens + 1);
    const TspPlan plan = ProtectRows(tokens, wanted_rows, later);

    std::set<int32_t> mandatory;
    for (int32_t position = 0; position < num_tokens; ++position) {
      if (position < tokens.sink_tokens() || position >= num_tokens - tokens.recent_tokens() ||
          (*prompt.classes)[static_cast<size_t>(position)] == TokenClass::kSpecial) {
        mandatory.insert(position);
      }
    }
    const auto num_mandatory = static_cast<int32_t>(mandatory.size());
    EXPECT_EQ(tokens.num_mandatory(), num_mandatory);
    EXPECT_EQ(plan.num_rows, std::max(wanted_rows, num_mandatory));
    EXPECT_EQ(plan.overran, wanted_rows < num_mandatory);
    std::set<int32_t> rows = mandatory;
    for (int32_t i = 1; i <= std::min(later.window, plan.num_rows / 2); ++i) {
      if (static_cast<int32_t>(rows.size()) < plan.num_rows) {
        rows.insert(num_tokens - i);
      }
    }
    int32_t there = 0;
    for (int32_t position = 0; position < num_tokens; ++position) {
      there += rows.count(position) == 0 &&
                       (*prompt.classes)[static_cast<size_t>(position)] == TokenClass::kPunctuation
                   ? 1
                   : 0;
    }
    const int32_t punctuation = later.punctuation
                                    ? std::min({there, plan.num_rows / 10,
                                                plan.num_rows - static_cast<int32_t>(rows.size())})
                                    : 0;
    EXPECT_EQ(plan.punctuation_rows, punctuation) << "seed " << seed;
    std::set<int32_t> got(plan.keep_slots.begin(), plan.keep_slots.end());
    for (int32_t position = 0; position < num_tokens; ++position) {
      if (position < plan.sink_slots || position >= num_tokens - plan.recent_slots) {
        got.insert(position);
      }
    }
    EXPECT_EQ(got, rows) << "seed " << seed;
  }
}

TEST(ProtectedRowsTest, TspLetsThroughWhatLaterHeadsKeepAndNothingForEarlierOnes) {
  HeadMap map = MakeUniformMap(6, 3);
  HeadEntry punct;
  punct.type = HeadType::kPunct;
  punct.keeps_punctuation = true;
  punct.confidence_ppm = kPpm;
  HeadEntry local = punct;
  local.type = HeadType::kLocal;
  local.keeps_punctuation = false;
  local.window = 30;
  const PromptInfo prompt = MakePrompt(kTokens, 3);
  const KvPolicySpec spec = MakeKvSpec("adaptive", 200'000, 400'000);
  const auto selection = [&](size_t layer, const HeadEntry& head) {
    HeadMap changed = map;
    changed.heads[layer * 3] = head;
    return MakePolicy(changed)->PlanTsp(spec, kShape, prompt, 0);
  };
  const TspPlan plain = MakePolicy(map)->PlanTsp(spec, kShape, prompt, 0);
  EXPECT_EQ(plain.num_rows, 80);
  EXPECT_EQ(plain.recent_slots, 6);
  EXPECT_EQ(plain.punctuation_rows, 0);
  EXPECT_FALSE(plain.keep_slots.empty());
  EXPECT_EQ(selection(2, punct).punctuation_rows, 0);  // of layer T itself
  EXPECT_EQ(selection(3, punct).punctuation_rows, 8);
  EXPECT_EQ(selection(2, local).recent_slots, 6);
  EXPECT_EQ(selection(3, local).recent_slots, 30);

  // A punct head above T keeps punctuation that the others there need not.
  map.heads[3 * 3] = punct;
  const Prefilled run = RunPolicy(*MakePolicy(map), spec, prompt, Scores(1, kTokens));
  const HeadPlan& head = run.plan.layers[3].heads[0];
  EXPECT_EQ(run.plan.layers[3].heads[0].competes, false);
  int32_t kept = 0;
  for (const int32_t position : run.kept[3][0]) {
    kept += (*prompt.classes)[static_cast<size_t>(position)] == TokenClass::kPunctuation &&
            position < kTokens - 6 && position >= spec.sink_tokens;
  }
  EXPECT_GE(kept, head.punctuation_entries);
}

}  // namespace
}  // namespace headroom::engine
