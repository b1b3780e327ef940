// What `adaptive` keeps, given scores: against a slow account of the plan, and what must hold of
// the sets whatever the map, the prompt and the budget.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "engine/kv/policies/adaptive_tokens.h"
#include "engine/kv/prefill_plan.h"
#include "engine/kv/retention.h"
#include "kernels/ref/ref_backend.h"
#include "tests/support/kv_fixture.h"
#include "tests/support/policy_cases.h"
#include "tests/support/test_map.h"

namespace headroom::engine {
namespace {

using testing::kShortSettings;
using testing::MakeKvSpec;
using testing::MakeTestMap;
using testing::MakeUniformMap;
using testing::RandomClasses;

using Slots = std::vector<int32_t>;
using KeptSets = std::vector<std::vector<Slots>>;  // [layer][kv head], prompt positions

constexpr KvModelShape kShape = {.num_layers = 6, .num_kv_heads = 3, .tsp_layer = 2};
constexpr int32_t kTokens = 200;

std::unique_ptr<KvPolicy> MakePolicy(HeadMap map, const std::string& prefer = "balanced",
                                     const AdaptiveSettings& settings = kShortSettings) {
  return MakeAdaptivePolicy(std::make_shared<const HeadMap>(std::move(map)), prefer, settings);
}

PromptInfo MakePrompt(int32_t num_tokens, uint64_t seed) {
  return {.num_tokens = num_tokens,
          .content_end = num_tokens,
          .classes = RandomClasses(num_tokens, seed)};
}

// Scores of every (layer, head, position), drawn once: what a layer scores of them is the columns
// of the rows that it sees.
class Scores {
 public:
  Scores(uint64_t seed, int32_t num_tokens) : num_tokens_(num_tokens) {
    const Philox random(seed, 3);
    const int32_t count = kShape.num_layers * kShape.num_kv_heads * num_tokens;
    for (int32_t i = 0; i < count; ++i) {
      values_.push_back(static_cast<float>(random.Uniform(static_cast<uint64_t>(i))));
    }
  }

  float at(int32_t layer, int32_t head, int32_t position) const {
    return values_[static_cast<size_t>((layer * kShape.num_kv_heads + head) * num_tokens_ +
                                       position)];
  }

  LayerScores Of(int32_t layer, const Slots& rows, int32_t window_rows) const {
    LayerScores scores;
    scores.num_columns = static_cast<int32_t>(rows.size()) - window_rows;
    for (int32_t head = 0; head < kShape.num_kv_heads; ++head) {
      for (int32_t slot = 0; slot < scores.num_columns; ++slot) {
        scores.pooled.push_back(at(layer, head, rows[static_cast<size_t>(slot)]));
      }
    }
    scores.raw.assign(scores.pooled.size(), 0.0f);
    return scores;
  }

 private:
  int32_t num_tokens_;
  std::vector<float> values_;
};

Slots AllRows(int32_t num_tokens) {
  Slots rows(static_cast<size_t>(num_tokens));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

std::vector<TokenClass> ClassesOf(const PromptInfo& prompt, const Slots& rows) {
  std::vector<TokenClass> classes;
  for (const int32_t row : rows) {
    classes.push_back(prompt.classes == nullptr ? TokenClass::kOther
                                                : (*prompt.classes)[static_cast<size_t>(row)]);
  }
  return classes;
}

// A prefill on given scores, by the executor that the cache uses.
struct Prefilled {
  PrefillPlan plan;
  Slots propagated;  // rows above T
  KeptSets kept;

  const Slots& rows(int32_t layer) const {
    return plan.layer_phases[static_cast<size_t>(layer)] == 0 ? all : propagated;
  }
  Slots all;
};

Prefilled RunPolicy(const KvPolicy& policy, const KvPolicySpec& spec, const PromptInfo& prompt,
                    const Scores& scores) {
  EXPECT_TRUE(policy.Validate(spec).ok());
  const std::unique_ptr<kernels::Backend> backend = kernels::CreateRefBackend();
  RetentionExecutor executor(*backend);
  Prefilled run;
  run.plan = MakePrefillPlan(policy, spec, kShape, prompt);
  run.all = AllRows(prompt.num_tokens);
  run.propagated = run.all;
  if (run.plan.phases.size() > 1) {
    const LayerScores at_t = scores.Of(kShape.tsp_layer, run.all, run.plan.needs.window_rows);
    executor.SelectRows(run.plan.selections[0], prompt.num_tokens, &at_t,
                        ClassesOf(prompt, run.all), kShape.num_kv_heads, run.propagated);
  }
  for (int32_t layer = 0; layer < kShape.num_layers; ++layer) {
    const Slots& rows = run.rows(layer);
    const LayerPlan& plan = run.plan.layers[static_cast<size_t>(layer)];
    std::vector<Slots> kept(static_cast<size_t>(kShape.num_kv_heads),
                            AllRows(static_cast<int32_t>(rows.size())));
    if (!plan.keep_all) {
      const LayerScores of_layer = scores.Of(layer, rows, run.plan.needs.window_rows);
      executor.SelectLayer(plan, static_cast<int32_t>(rows.size()), &of_layer,
                           ClassesOf(prompt, rows), kept);
    }
    for (Slots& slots : kept) {
      for (int32_t& slot : slots) {
        slot = rows[static_cast<size_t>(slot)];
      }
    }
    run.kept.push_back(kept);
  }
  return run;
}

int64_t NumEntries(const KeptSets& kept) {
  int64_t entries = 0;
  for (const std::vector<Slots>& layer : kept) {
    for (const Slots& head : layer) {
      entries += static_cast<int64_t>(head.size());
    }
  }
  return entries;
}

bool IsSubset(const Slots& smaller, const Slots& larger) {
  return std::includes(larger.begin(), larger.end(), smaller.begin(), smaller.end());
}

// What a layer keeps, by sorting lists of slots.
std::vector<Slots> SelectSlowly(const LayerPlan& plan, const std::vector<TokenClass>& classes,
                                const LayerScores& scores) {
  const auto num_slots = static_cast<int32_t>(classes.size());
  const auto score_of = [&](int32_t head, int32_t slot) {
    return scores.pooled[static_cast<size_t>(head * scores.num_columns + slot)];
  };
  std::vector<std::set<int32_t>> kept;
  std::vector<std::tuple<float, int32_t, int32_t>> pairs;  // best first when sorted
  int32_t left = plan.pool_entries;
  for (int32_t head = 0; head < static_cast<int32_t>(plan.heads.size()); ++head) {
    const HeadPlan& of = plan.heads[static_cast<size_t>(head)];
    std::set<int32_t> slots;
    for (int32_t slot = 0; slot < num_slots; ++slot) {
      if (slot < of.sink_slots || slot >= num_slots - of.recent_slots ||
          classes[static_cast<size_t>(slot)] == TokenClass::kSpecial) {
        slots.insert(slot);
      }
    }
    for (int32_t slot = num_slots - 1, more = of.newest_entries; more > 0; --slot) {
      more -= slots.insert(slot).second ? 1 : 0;
    }
    Slots order = AllRows(scores.num_columns);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return score_of(head, a) > score_of(head, b); });
    int32_t punctuation = of.punctuation_entries;
    for (const int32_t slot : order) {
      if (punctuation > 0 && classes[static_cast<size_t>(slot)] == TokenClass::kPunctuation) {
        punctuation -= slots.insert(slot).second ? 1 : 0;
      }
    }
    for (const int32_t slot : order) {
      if (static_cast<int32_t>(slots.size()) < of.safe_entries) {
        slots.insert(slot);
      }
    }
    left -= static_cast<int32_t>(slots.size());
    for (int32_t slot = 0; of.competes && slot < scores.num_columns; ++slot) {
      if (slots.count(slot) == 0) {
        pairs.emplace_back(-score_of(head, slot) * of.weight, head, slot);
      }
    }
    kept.push_back(slots);
  }
  std::sort(pairs.begin(), pairs.end());
  for (const auto& [score, head, slot] : pairs) {
    std::set<int32_t>& slots = kept[static_cast<size_t>(head)];
    if (left > 0 &&
        static_cast<int32_t>(slots.size()) < plan.heads[static_cast<size_t>(head)].num_entries) {
      slots.insert(slot);
      --left;
    }
  }
  std::vector<Slots> result;
  for (const std::set<int32_t>& slots : kept) {
    result.emplace_back(slots.begin(), slots.end());
  }
  return result;
}

TEST(AdaptivePolicyTest, KeepsWhatAListOfThePlanSortedByHandKeeps) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const std::unique_ptr<KvPolicy> policy = MakePolicy(MakeTestMap(6, 3, seed));
    const PromptInfo prompt = MakePrompt(kTokens - static_cast<int32_t>(seed), seed);
    const Scores scores(seed, kTokens);
    const KvPolicySpec spec = MakeKvSpec("adaptive", 150'000 + static_cast<int64_t>(seed) * 20'000,
                                         seed % 2 == 0 ? kPpm : 450'000);
    const Prefilled run = RunPolicy(*policy, spec, prompt, scores);
    for (int32_t layer = 0; layer < kShape.num_layers; ++layer) {
      const LayerPlan& plan = run.plan.layers[static_cast<size_t>(layer)];
      if (plan.keep_all) {
        continue;
      }
      const Slots& rows = run.rows(layer);
      std::vector<Slots> wanted =
          SelectSlowly(plan, ClassesOf(prompt, rows), scores.Of(layer, rows, spec.window));
      for (Slots& slots : wanted) {
        for (int32_t& slot : slots) {
          slot = rows[static_cast<size_t>(slot)];
        }
      }
      EXPECT_EQ(run.kept[static_cast<size_t>(layer)], wanted)
          << "seed " << seed << " layer " << layer;
    }
  }
}

// Ratios of both scopes and all plans, with and without TSP: a larger budget keeps all that a
// smaller one keeps.
TEST(AdaptivePolicyTest, KeptSetsNestInTheRetentionAtFixedTau) {
  for (const int64_t tau : {kPpm, int64_t{500'000}, int64_t{300'000}}) {
    for (const KvScope scope : {KvScope::kModel, KvScope::kLayer}) {
      for (const char* prefer : {"balanced", "answers", "no plan"}) {
        const std::unique_ptr<KvPolicy> policy = MakePolicy(MakeTestMap(6, 3, 8), prefer);
        const PromptInfo prompt = MakePrompt(kTokens, 2);
        const Scores scores(5, kTokens);
        KeptSets last;
        for (int64_t rho = 5'000; rho <= kPpm; rho += 5'000) {
          KvPolicySpec spec = MakeKvSpec("adaptive", rho, tau);
          spec.scope = scope;
          const KeptSets kept = RunPolicy(*policy, spec, prompt, scores).kept;
          for (size_t layer = 0; layer < last.size(); ++layer) {
            for (size_t head = 0; head < last[layer].size(); ++head) {
              ASSERT_TRUE(IsSubset(last[layer][head], kept[layer][head]))
                  << "tau " << tau << " rho " << rho << " layer " << layer << " head " << head
                  << " plan " << prefer;
            }
          }
          last = kept;
        }
      }
    }
  }
}

TEST(AdaptivePolicyTest, SpendsThePoolOfFastkvToTheEntryAndKeepsWhatIsMandatory) {
  const KvPolicyRegistry registry;
  const std::unique_ptr<KvPolicy> policy = MakePolicy(MakeTestMap(6, 3, 1));
  const PromptInfo prompt = MakePrompt(kTokens, 6);
  const Scores scores(7, kTokens);
  for (const int64_t tau : {kPpm, int64_t{400'000}}) {
    for (const int64_t rho : {250'000, 333'333, 500'000, 900'000}) {
      const KvPolicySpec spec = MakeKvSpec("adaptive", rho, tau);
      const Prefilled run = RunPolicy(*policy, spec, prompt, scores);
      int64_t wanted = 0;
      for (int32_t layer = 0; layer < kShape.num_layers; ++layer) {
        const Slots& rows = run.rows(layer);
        wanted += 3 * std::min<int64_t>(ScalePpm(rho, kTokens), static_cast<int64_t>(rows.size()));
        for (const Slots& kept : run.kept[static_cast<size_t>(layer)]) {
          EXPECT_TRUE(IsSubset(kept, rows));
          for (int32_t position = 0; position < kTokens; ++position) {
            const bool mandatory =
                position < spec.sink_tokens || position >= kTokens - 6 ||
                (*prompt.classes)[static_cast<size_t>(position)] == TokenClass::kSpecial;
            EXPECT_TRUE(!mandatory || std::binary_search(kept.begin(), kept.end(), position));
          }
        }
      }
      EXPECT_EQ(NumEntries(run.kept), wanted) << "tau " << tau << " rho " << rho;
      EXPECT_TRUE(run.plan.reasons.empty());
    }
  }
}

TEST(AdaptivePolicyTest, MandatorySetsBeatTheBudget) {
  const PromptInfo prompt = MakePrompt(kTokens, 6);
  const PromptTokens tokens(prompt, 2, 6);
  const std::unique_ptr<KvPolicy> policy = MakePolicy(MakeTestMap(6, 3, 1));
  const Prefilled run =
      RunPolicy(*policy, MakeKvSpec("adaptive", 10'000, kPpm), prompt, Scores(7, kTokens));
  EXPECT_EQ(run.plan.reasons, (std::vector<std::string>{"floor"}));
  for (const std::vector<Slots>& layer : run.kept) {
    for (const Slots& head : layer) {
      EXPECT_EQ(static_cast<int64_t>(head.size()), tokens.num_mandatory());
    }
  }
}

// Heads that are not sure of a fixed type count as heavy.
bool IsHeldElastic(const HeadEntry& head) {
  return head.type >= HeadType::kHeavy || head.borderline || head.confidence_ppm < 800'000;
}

// Heavy and dense heads have a floor each, out of what dense heads leave, as far as that goes.
TEST(AdaptivePolicyTest, FloorsComeOutOfWhatDenseHeadsLeave) {
  const PromptInfo prompt = MakePrompt(kTokens, 6);
  const PromptTokens tokens(prompt, 2, 6);
  HeadMap map = MakeTestMap(6, 3, 1);
  map.spend = {{.prefer = "balanced", .points = {{.retention_ppm = kPpm, .dense_share_ppm = 0}}}};
  const std::unique_ptr<KvPolicy> policy = MakePolicy(map);
  int64_t elastic = 0;
  for (const HeadEntry& head : map.heads) {
    elastic += IsHeldElastic(head) ? 1 : 0;
  }
  const int64_t pool_of_floors = elastic * kShortSettings.floor_entries;
  // The mean that gives every elastic head its floor, and nothing more to any.
  const int64_t mean = tokens.num_mandatory() + (pool_of_floors + 17) / 18;
  for (const int64_t entries : {int64_t{tokens.num_mandatory()} + 1, mean}) {
    const Prefilled run =
        RunPolicy(*policy, MakeKvSpec("adaptive", (entries * kPpm + kTokens - 1) / kTokens, kPpm),
                  prompt, Scores(7, kTokens));
    EXPECT_TRUE(run.plan.reasons.empty());
    EXPECT_EQ(NumEntries(run.kept), entries * 18);
    for (size_t i = 0; i < map.heads.size(); ++i) {
      const Slots& kept = run.kept[i / 3][i % 3];
      const int64_t more = static_cast<int64_t>(kept.size()) - tokens.num_mandatory();
      if (entries < mean) {
        EXPECT_LE(more, kShortSettings.floor_entries);
      } else if (IsHeldElastic(map.heads[i])) {
        EXPECT_GE(more, kShortSettings.floor_entries);
      }
    }
  }
}

// Invariant: all heads heavy, no protection beyond the window's, a floor as large as the budget.
TEST(AdaptivePolicyTest, AUniformMapKeepsExactlyTheSetsOfFastkv) {
  const KvPolicyRegistry registry;
  const Scores scores(11, kTokens);
  const PromptInfo prompt = {.num_tokens = kTokens, .content_end = kTokens - 3};
  for (const int64_t tau : {kPpm, int64_t{300'000}}) {
    for (const int64_t rho : {40'000, 100'000, 250'000, 600'000}) {
      for (const KvScope scope : {KvScope::kModel, KvScope::kLayer}) {
        KvPolicySpec spec = MakeKvSpec("adaptive", rho, tau);
        spec.scope = scope;
        spec.sink_tokens = 1;
        // Floors beat budgets: this one is the budget.
        const std::unique_ptr<KvPolicy> floored = MakePolicy(
            MakeUniformMap(6, 3), "",
            {.recent_tokens = 0,
             .floor_entries = std::max<int32_t>(
                 0, static_cast<int32_t>(ScalePpm(rho, kTokens)) - spec.window - 3 - 1)});
        KvPolicySpec fast = MakeKvSpec("fastkv", rho, tau);
        fast.sink_tokens = 1;
        const Prefilled wanted = RunPolicy(*registry.Find("fastkv"), fast, prompt, scores);
        const Prefilled got = RunPolicy(*floored, spec, prompt, scores);
        EXPECT_EQ(got.propagated, wanted.propagated) << rho;
        EXPECT_EQ(got.kept, wanted.kept) << "rho " << rho << " tau " << tau;
      }
    }
  }
}

// Heads change places within their layers, and so do their scores.
TEST(AdaptivePolicyTest, APermutedMapKeepsPermutedSets) {
  HeadMap map = MakeTestMap(6, 3, 2);
  HeadMap permuted = map;
  const auto swap_heads = [](auto& layer) { std::swap(layer[0], layer[2]); };
  for (size_t layer = 0; layer < 6; ++layer) {
    std::swap(permuted.heads[3 * layer], permuted.heads[3 * layer + 2]);
  }
  const std::unique_ptr<kernels::Backend> backend = kernels::CreateRefBackend();
  RetentionExecutor executor(*backend);
  const PromptInfo prompt = MakePrompt(kTokens, 9);
  const Slots rows = AllRows(kTokens);
  const std::vector<TokenClass> classes = ClassesOf(prompt, rows);
  const Scores scores(3, kTokens);
  // All quotas are whole: none is cut between heads by their order.
  KvPolicySpec spec = MakeKvSpec("adaptive", 600'000, kPpm);
  spec.options.local_share_ppm = 500'000;
  const PrefillPlan plan = MakePrefillPlan(*MakePolicy(map), spec, kShape, prompt);
  const PrefillPlan other = MakePrefillPlan(*MakePolicy(permuted), spec, kShape, prompt);
  for (int32_t layer = 0; layer < 6; ++layer) {
    LayerScores of_layer = scores.Of(layer, rows, spec.window);
    std::vector<Slots> kept;
    executor.SelectLayer(plan.layers[static_cast<size_t>(layer)], kTokens, &of_layer, classes,
                         kept);
    for (int32_t i = 0; i < of_layer.num_columns; ++i) {
      std::swap(of_layer.pooled[static_cast<size_t>(i)],
                of_layer.pooled[static_cast<size_t>(2 * of_layer.num_columns + i)]);
    }
    std::vector<Slots> kept_permuted;
    executor.SelectLayer(other.layers[static_cast<size_t>(layer)], kTokens, &of_layer, classes,
                         kept_permuted);
    swap_heads(kept_permuted);
    EXPECT_EQ(kept, kept_permuted) << "layer " << layer;
  }
}

// A model of one dense head among heavy ones: it is filled, and the map's places count.
TEST(AdaptivePolicyTest, TheDenseHeadOfTheMapKeepsEverythingThatTheShareAllows) {
  HeadMap map = MakeUniformMap(6, 3);
  HeadEntry& dense = map.heads[4 * 3 + 1];
  dense.type = HeadType::kDense;
  dense.copy_ppm = 900'000;
  KvPolicySpec spec = MakeKvSpec("adaptive", 400'000, kPpm);
  spec.options.dense_share_ppm = 200'000;  // 187 entries, 172 are what the head has room for
  const Prefilled run =
      RunPolicy(*MakePolicy(map), spec, MakePrompt(kTokens, 4), Scores(1, kTokens));
  for (int32_t layer = 0; layer < 6; ++layer) {
    for (int32_t head = 0; head < 3; ++head) {
      const bool whole =
          run.kept[static_cast<size_t>(layer)][static_cast<size_t>(head)].size() == kTokens;
      EXPECT_EQ(whole, layer == 4 && head == 1) << "layer " << layer << " head " << head;
    }
  }
}

TEST(AdaptivePolicyTest, UnsureHeadsAreHeldToBeHeavy) {
  HeadMap map = MakeUniformMap(6, 3);
  for (HeadEntry& head : map.heads) {
    head.type = HeadType::kSpecial;
  }
  map.heads[0].borderline = true;
  map.heads[1].confidence_ppm = 799'999;
  const PrefillPlan plan = MakePrefillPlan(*MakePolicy(map), MakeKvSpec("adaptive", 200'000, kPpm),
                                           kShape, MakePrompt(kTokens, 4));
  for (size_t head = 0; head < 3; ++head) {
    EXPECT_EQ(plan.layers[0].heads[head].competes, head < 2);
  }
}

TEST(AdaptivePolicyTest, RefusesAMapOfAnotherShapeAndSettingsOutOfRange) {
  const std::unique_ptr<KvPolicy> policy = MakePolicy(MakeTestMap(6, 3, 1));
  KvPolicySpec spec = MakeKvSpec("adaptive", 200'000, kPpm);
  EXPECT_TRUE(policy->ValidateShape(spec, kShape).ok());
  EXPECT_EQ(StatusMessage(policy->ValidateShape(spec, {.num_layers = 6, .num_kv_heads = 2})),
            "kv_policy: the head map of policy adaptive has 6 layers of 3 KV heads; the model has "
            "6 of 2");
  spec.options.local_share_ppm = 500'001;
  EXPECT_EQ(StatusMessage(policy->Validate(spec)),
            "kv_options.local_share (ppm): got 500001, wanted 0 to 500000");
}

TEST(AdaptivePolicyTest, ModeRecoveryGivesEveryHeadTheBudgetOfItsTypeWhateverTheRetention) {
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

TEST(AdaptivePolicyTest, ModeBothTakesTheSmallerAndNests) {
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

TEST(AdaptivePolicyTest, TspLetsThroughWhatLaterHeadsKeepAndNothingForEarlierOnes) {
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
