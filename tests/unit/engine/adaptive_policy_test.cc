// What `adaptive` keeps, given scores: against a slow account of the plan, and what must hold of
// the sets whatever the map, the prompt and the budget.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/kv/policies/adaptive_tokens.h"
#include "engine/kv/prefill_plan.h"
#include "engine/kv/retention.h"
#include "kernels/ref/ref_backend.h"
#include "tests/support/adaptive_run.h"
#include "tests/support/kv_fixture.h"
#include "tests/support/test_map.h"

namespace headroom::engine {
namespace {

using testing::AllRows;
using testing::ClassesOf;
using testing::IsSubset;
using testing::KeptSets;
using testing::kShortSettings;
using testing::MakeKvSpec;
using testing::MakePolicy;
using testing::MakePrompt;
using testing::MakeProse;
using testing::MakeTestMap;
using testing::MakeUniformMap;
using testing::NumEntries;
using testing::Prefilled;
using testing::RunPolicy;
using testing::Scores;
using testing::Slots;

constexpr KvModelShape kShape = testing::kAdaptiveShape;
constexpr int32_t kTokens = testing::kAdaptiveTokens;

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
    for (int32_t slot = 0, more = of.oldest_entries; more > 0; ++slot) {
      more -= slots.insert(slot).second ? 1 : 0;
    }
    for (const bool content : {true, false}) {
      for (const int32_t slot : order) {
        const bool counts = !of.content_first || !content ||
                            classes[static_cast<size_t>(slot)] != TokenClass::kPunctuation;
        if (counts && static_cast<int32_t>(slots.size()) < of.safe_entries) {
          slots.insert(slot);
        }
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
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const std::unique_ptr<KvPolicy> policy =
        MakePolicy(MakeTestMap(6, 3, seed), seed % 3 == 0 ? "answers" : "balanced");
    const auto num_tokens = kTokens - static_cast<int32_t>(seed);
    const PromptInfo prompt =
        seed % 4 < 2 ? MakePrompt(num_tokens, seed) : MakeProse(num_tokens, seed);
    const Scores scores(seed, kTokens);
    const KvPolicySpec spec = MakeKvSpec("adaptive", 60'000 + static_cast<int64_t>(seed) * 20'000,
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

void ExpectNested(const KvPolicy& policy, const PromptInfo& prompt, KvScope scope, int64_t tau) {
  const Scores scores(5, prompt.num_tokens);
  KeptSets last;
  for (int64_t rho = 5'000; rho <= kPpm; rho += 5'000) {
    KvPolicySpec spec = MakeKvSpec("adaptive", rho, tau);
    spec.scope = scope;
    const KeptSets kept = RunPolicy(policy, spec, prompt, scores).kept;
    for (size_t layer = 0; layer < last.size(); ++layer) {
      for (size_t head = 0; head < last[layer].size(); ++head) {
        ASSERT_TRUE(IsSubset(last[layer][head], kept[layer][head]))
            << "tau " << tau << " rho " << rho << " layer " << layer << " head " << head;
      }
    }
    last = kept;
  }
}

// Ratios of both scopes and all plans, with and without TSP: a larger budget keeps all that a
// smaller one keeps.
TEST(AdaptivePolicyTest, KeptSetsNestInTheRetentionAtFixedTau) {
  for (const int64_t tau : {kPpm, int64_t{500'000}, int64_t{300'000}}) {
    for (const KvScope scope : {KvScope::kModel, KvScope::kLayer}) {
      for (const char* prefer : {"balanced", "answers", "no plan"}) {
        for (const PromptInfo& prompt : {MakePrompt(kTokens, 2), MakeProse(kTokens, 2)}) {
          ExpectNested(*MakePolicy(MakeTestMap(6, 3, 8), prefer), prompt, scope, tau);
          ASSERT_FALSE(HasFailure()) << "plan " << prefer;
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

// Heavy and dense heads have a floor each, out of what dense heads leave, as far as that goes. So
// small a pool has no leads.
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
        const std::unique_ptr<KvPolicy> floored =
            MakePolicy(MakeUniformMap(6, 3), "",
                       {.recent_tokens = 0,
                        .floor_entries = std::max<int32_t>(
                            0, static_cast<int32_t>(ScalePpm(rho, kTokens)) - spec.window - 3 - 1),
                        .newest_entries = 0,
                        .oldest_entries = 0});
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

// 1,000 tokens, leads of 24: at .1 no head has one, at .25 all have it, also one of a fixed type.
TEST(AdaptivePolicyTest, AllHeadsHoldTheBeginningWhereTheBudgetIsLarge) {
  HeadMap map = MakeUniformMap(6, 3);
  map.heads[4].type = HeadType::kSpecial;
  map.heads[7].type = HeadType::kDense;
  const PromptInfo prompt = {.num_tokens = 1000, .content_end = 1000};
  KvPolicySpec spec = MakeKvSpec("adaptive", 100'000, kPpm);
  spec.options.dense_share_ppm = kPpm;
  const std::unique_ptr<KvPolicy> policy =
      MakePolicy(map, "", {.recent_tokens = 16, .floor_entries = 0, .newest_entries = 0});
  const auto beginnings = [&](int64_t rho) {
    spec.retention_ppm = rho;
    Slots lengths;
    for (const std::vector<Slots>& layer : RunPolicy(*policy, spec, prompt, Scores(2, 1000)).kept) {
      for (const Slots& kept : layer) {
        int32_t length = 0;
        while (length < static_cast<int32_t>(kept.size()) &&
               kept[static_cast<size_t>(length)] == length) {
          ++length;
        }
        lengths.push_back(length);
      }
    }
    return lengths;
  };
  const Slots small = beginnings(90'000);
  const Slots large = beginnings(250'000);
  EXPECT_EQ(small[4], 2);
  EXPECT_EQ(large[4], 2 + 24);
  EXPECT_LT(*std::min_element(small.begin(), small.end()), 5);
  EXPECT_GE(*std::min_element(large.begin(), large.end()), 2 + 24);
}

// The same with floors of the newest tokens: sinks and a window.
TEST(AdaptivePolicyTest, AUniformMapOfNewestFloorsKeepsExactlyTheSetsOfStreaming) {
  const KvPolicyRegistry registry;
  const Scores scores(11, kTokens);
  const PromptInfo prompt = {.num_tokens = kTokens, .content_end = kTokens};
  for (const int64_t rho : {40'000, 100'000, 250'000, 600'000}) {
    KvPolicySpec spec = MakeKvSpec("adaptive", rho, kPpm);
    const std::unique_ptr<KvPolicy> floored = MakePolicy(MakeUniformMap(6, 3), "",
                                                         {.recent_tokens = 0,
                                                          .floor_entries = kTokens,
                                                          .newest_entries = kTokens,
                                                          .oldest_entries = 0});
    KvPolicySpec streaming = MakeKvSpec("streaming", rho, kPpm);
    streaming.sink_tokens = spec.sink_tokens;
    const Prefilled wanted = RunPolicy(*registry.Find("streaming"), streaming, prompt, scores);
    EXPECT_EQ(RunPolicy(*floored, spec, prompt, scores).kept, wanted.kept) << "rho " << rho;
  }
}

// 100 tokens of 1,000 a head; share 1 of what the mandatory ones leave is (100 - 10) * 18 = 1,620
// entries: the content of the first two dense heads and a part of the third's. At .2 there are
// 3,420: the content of all four, which would make three of them whole. At .3 all are whole.
TEST(AdaptivePolicyTest, DenseHeadsHoldContentBeforePunctuationUpToAFifth) {
  HeadMap map = MakeUniformMap(6, 3);
  const std::vector<size_t> order = {7, 2, 16, 11};
  for (size_t rank = 0; rank < order.size(); ++rank) {
    map.heads[order[rank]].type = HeadType::kDense;
    map.heads[order[rank]].fill_rank = static_cast<int32_t>(rank);
  }
  const PromptInfo prompt = MakeProse(1000, 3);
  const Scores scores(4, 1000);
  const auto content = [&](const Slots& kept) {
    return std::count_if(kept.begin(), kept.end(), [&](int32_t position) {
      return (*prompt.classes)[static_cast<size_t>(position)] != TokenClass::kPunctuation;
    });
  };
  const int64_t all_content = content(AllRows(1000));
  const std::unique_ptr<KvPolicy> policy =
      MakePolicy(map, "", {.recent_tokens = 6, .newest_entries = 2, .oldest_entries = 0});
  KvPolicySpec spec = MakeKvSpec("adaptive", 100'000, kPpm);
  spec.options.dense_share_ppm = kPpm;
  const KeptSets tenth = RunPolicy(*policy, spec, prompt, scores).kept;
  for (const size_t rank : {0, 1}) {
    const Slots& kept = tenth[order[rank] / 3][order[rank] % 3];
    EXPECT_EQ(content(kept), all_content);
    // Of punctuation only what is mandatory or among the newest of its floor.
    for (const int32_t position : kept) {
      EXPECT_TRUE((*prompt.classes)[static_cast<size_t>(position)] != TokenClass::kPunctuation ||
                  position < spec.sink_tokens || position >= 1000 - 6 - 2)
          << position;
    }
  }
  const Slots& third = tenth[order[2] / 3][order[2] % 3];
  EXPECT_LT(content(third), all_content);
  EXPECT_GT(content(third), 50);
  spec.retention_ppm = 200'000;
  const KeptSets fifth = RunPolicy(*policy, spec, prompt, scores).kept;
  spec.retention_ppm = 300'000;
  const KeptSets more = RunPolicy(*policy, spec, prompt, scores).kept;
  for (const size_t head : order) {
    EXPECT_EQ(content(fifth[head / 3][head % 3]), all_content) << head;
    EXPECT_EQ(more[head / 3][head % 3].size(), 1000U) << head;
  }
  EXPECT_LT(fifth[order[3] / 3][order[3] % 3].size(), 1000U);
}

// Without token classes all is content: (110 - 10) * 18 entries hold one dense head whole, although
// the pool gives heads a part of their leads only.
TEST(AdaptivePolicyTest, WithoutTokenClassesContentIsTheWholeHead) {
  HeadMap map = MakeUniformMap(6, 3);
  map.heads[7].type = map.heads[2].type = HeadType::kDense;
  map.heads[7].fill_rank = 0;
  map.heads[2].fill_rank = 1;
  const PromptInfo prompt = {.num_tokens = 1000, .content_end = 1000};
  const Scores scores(4, 1000);
  KvPolicySpec spec = MakeKvSpec("adaptive", 110'000, kPpm);
  spec.options.dense_share_ppm = kPpm;
  const KeptSets kept =
      RunPolicy(*MakePolicy(map, "", {.recent_tokens = 6}), spec, prompt, scores).kept;
  EXPECT_EQ(kept[2][1].size(), 1000U);
  EXPECT_LT(kept[0][2].size(), 800U);
  EXPECT_GT(kept[5][0].size(), 10U);  // a part of its lead
  EXPECT_LT(kept[5][0].size(), 34U);
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
}  // namespace
}  // namespace headroom::engine
