// Records with masses in closed form: labels follow by arithmetic on paper.
#include "profiler/classifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/unit/profiler/profile_records.h"

namespace headroom::profiler {
namespace {

using engine::HeadEntry;
using engine::HeadType;
using ::testing::ElementsAre;

constexpr Mixture kSink = {.special = 1'000'000};
constexpr Mixture kPunct = {.special = 500'000, .punct = 500'000};
constexpr Mixture kLocal = {.special = 200'000, .local = 800'000, .reach = 200};
constexpr Mixture kSpread = {};

Ladder TestLadder() { return DefaultLadder(300'000); }

HeadClassifier MakeClassifier(const HeadShape& shape, ClassifierOptions options = {}) {
  return HeadClassifier(shape, TestLadder(), PaperLadder(300'000), options);
}

std::vector<HeadType> TypesOf(const Classification& result) {
  std::vector<HeadType> types;
  for (const HeadEntry& head : result.heads) {
    types.push_back(head.type);
  }
  return types;
}

// One KV head per mixture, `count` equal prompts.
Classification ClassifyMixtures(const std::vector<Mixture>& mixtures, int32_t count = 8) {
  const HeadShape shape{1, static_cast<int32_t>(mixtures.size()),
                        static_cast<int32_t>(mixtures.size())};
  HeadClassifier classifier = MakeClassifier(shape);
  for (int32_t i = 0; i < count; ++i) {
    classifier.Add(MakeRecord(shape, TestLadder(), mixtures, 4000));
  }
  return classifier.Classify();
}

TEST(ClassifierTest, PureHeadsGetTheirTypes) {
  const Classification result = ClassifyMixtures({kSink, kPunct, kLocal, kSpread});
  EXPECT_THAT(TypesOf(result), ElementsAre(HeadType::kSpecial, HeadType::kPunct, HeadType::kLocal,
                                           HeadType::kDense));
  const HeadEntry& local = result.heads[2];
  EXPECT_EQ(local.window, 256);  // the first window that covers the reach of 200
  EXPECT_EQ(local.budget_tokens, 256 + 5);
  EXPECT_EQ(local.budget_ppm, 0);
  EXPECT_FALSE(local.keeps_punctuation);
  EXPECT_TRUE(result.heads[1].keeps_punctuation);
  EXPECT_EQ(result.heads[3].budget_ppm, 1'000'000);
  for (const HeadEntry& head : result.heads) {
    EXPECT_EQ(head.confidence_ppm, 1'000'000);
    EXPECT_EQ(head.recovery.size(), TestLadder().rungs.size());
    EXPECT_EQ(head.recovery.back().p10_ppm, 1'000'000);
  }
}

// sink + rest on spread tokens: R0 keeps special + (1 - special) * 64 / 4000. It reaches .95 at
// special = (.95 - .016) / .984 = .949187.
TEST(ClassifierTest, TheLabelFlipsAtTheAnalyticBoundary) {
  const Mixture above = {.special = 949'188};
  const Mixture below = {.special = 949'180};
  const Classification result = ClassifyMixtures({above, below});
  EXPECT_EQ(result.heads[0].type, HeadType::kSpecial);
  EXPECT_NE(result.heads[1].type, HeadType::kSpecial);
  EXPECT_TRUE(result.heads[0].borderline);  // by margin; its confidence is 1
}

// A tenth of the prompts may fail, not more; and no domain may fall far below theta.
TEST(ClassifierTest, NineOfTenPromptsAndTheWorstDomainDecide) {
  const HeadShape shape{1, 1, 1};
  const auto classify = [&](int32_t good, int32_t bad, const std::string& bad_domain) {
    HeadClassifier classifier = MakeClassifier(shape);
    for (int32_t i = 0; i < good + bad; ++i) {
      const bool is_bad = i >= good;
      classifier.Add(MakeRecord(shape, TestLadder(), {is_bad ? kSpread : kSink}, 4000,
                                is_bad ? bad_domain : "text"));
    }
    return classifier.Classify().heads[0].type;
  };
  EXPECT_EQ(classify(31, 1, "text"), HeadType::kSpecial);
  EXPECT_NE(classify(28, 4, "text"), HeadType::kSpecial);
  // One prompt of its own domain: the domain's mean counts, however small its share.
  EXPECT_EQ(classify(31, 1, "code"), HeadType::kDense);
}

TEST(ClassifierTest, AGroupOfThreeSinkHeadsAndOneThatFetchesIsNotSpecial) {
  const HeadShape shape{1, 4, 1};
  HeadClassifier classifier = MakeClassifier(shape);
  // The mean of the four keeps .963 of its mass on sinks: only the neediest one tells.
  const Mixture fetches = {.special = 840'000};
  for (int32_t i = 0; i < 8; ++i) {
    classifier.Add(MakeRecord(shape, TestLadder(), {kSink, kSink, fetches, kSink}, 4000));
  }
  const Classification result = classifier.Classify();
  EXPECT_EQ(result.heads[0].type, HeadType::kDense);
  EXPECT_THAT(result.heads[0].query_types, ElementsAre(HeadType::kSpecial, HeadType::kSpecial,
                                                       HeadType::kDense, HeadType::kSpecial));
}

ProbeRecord Probe(const std::string& kind, std::vector<int32_t> scores) {
  ProbeRecord record;
  record.kind = kind;
  (kind == "induction" ? record.induction_ppm : record.copy_ppm) = std::move(scores);
  return record;
}

TEST(ClassifierTest, AProbePromotesAHeadThatItsMassTypesLocalAndDemotesNone) {
  const HeadShape shape{1, 4, 2};
  HeadClassifier classifier = MakeClassifier(shape);
  for (int32_t i = 0; i < 8; ++i) {
    classifier.Add(MakeRecord(shape, TestLadder(), {kLocal, kLocal, kLocal, kSpread}, 4000));
  }
  // One in twenty prompts at the threshold is enough, two at least.
  for (int32_t i = 0; i < 40; ++i) {
    classifier.AddProbe(Probe("needle", {0, i % 20 == 7 ? 100'000 : 0, 0, 0}));
  }
  const Classification result = classifier.Classify();
  EXPECT_THAT(TypesOf(result), ElementsAre(HeadType::kDense, HeadType::kDense));
  EXPECT_THAT(result.promoted, ElementsAre(1, 0));
  EXPECT_EQ(result.heads[0].copy_ppm, 5'000);  // mean over 40 prompts
  EXPECT_GT(result.heads[0].weight_ppm, 1'000'000);
  EXPECT_EQ(result.heads[1].weight_ppm, 1'000'000);
}

TEST(ClassifierTest, FewerFiringsThanTheShareDoNotPromote) {
  const HeadShape shape{1, 1, 1};
  HeadClassifier classifier = MakeClassifier(shape);
  classifier.Add(MakeRecord(shape, TestLadder(), {kSink}, 4000));
  for (int32_t i = 0; i < 41; ++i) {
    classifier.AddProbe(Probe("induction", {i < 2 ? 900'000 : 99'999}));
  }
  EXPECT_EQ(classifier.Classify().heads[0].type, HeadType::kSpecial);
}

TEST(ClassifierTest, OnePromptOfManyDoesNotPromote) {
  const HeadShape shape{1, 1, 1};
  const auto classify = [&](int32_t count) {
    HeadClassifier classifier = MakeClassifier(shape);
    classifier.Add(MakeRecord(shape, TestLadder(), {kSink}, 4000));
    for (int32_t i = 0; i < count; ++i) {
      classifier.AddProbe(Probe("needle", {i == 0 ? 900'000 : 0}));
    }
    return classifier.Classify().heads[0].type;
  };
  EXPECT_EQ(classify(1), HeadType::kDense);
  EXPECT_EQ(classify(8), HeadType::kSpecial);
}

TEST(ClassifierTest, AValueErrorAboveTheLimitTakesTheNextRung) {
  const HeadShape shape{1, 1, 1};
  const Ladder ladder = TestLadder();
  ClassifierOptions options;
  options.value_error_limit_ppm = 250'000;
  HeadClassifier classifier = MakeClassifier(shape, options);
  PromptRecord record = MakeRecord(shape, ladder, {kLocal}, 4000);
  record.value_error_ppm.assign(ladder.rungs.size(), 100'000);
  const auto index = [&](const char* name) {
    return static_cast<size_t>(std::find_if(ladder.rungs.begin(), ladder.rungs.end(),
                                            [&](const Rung& r) { return r.name == name; }) -
                               ladder.rungs.begin());
  };
  record.value_error_ppm[index("R2:256")] = 400'000;
  record.value_error_ppm[index("R2p:256")] = 400'000;
  classifier.Add(record);
  const Classification result = classifier.Classify();
  EXPECT_EQ(result.heads[0].type, HeadType::kLocal);
  EXPECT_EQ(result.heads[0].window, 512);
  EXPECT_EQ(result.heads[0].recovery[index("R2:256")].value_error_ppm, 400'000);
}

TEST(ClassifierTest, LateRowsAreThoseOfTheChosenRungAndTheMeanOverPrompts) {
  const HeadShape shape{1, 1, 1};
  const Ladder ladder = TestLadder();
  HeadClassifier classifier = MakeClassifier(shape, {});
  for (const int32_t late : {700'000, 900'000}) {
    PromptRecord record = MakeRecord(shape, ladder, {kLocal}, 4000);
    record.late_p10_ppm.assign(ladder.rungs.size(), 0);
    for (size_t rung = 0; rung < ladder.rungs.size(); ++rung) {
      record.late_p10_ppm[rung] = ladder.rungs[rung].name == "R2:256" ? late : 1;
    }
    classifier.Add(record);
  }
  const Classification result = classifier.Classify();
  ASSERT_EQ(result.heads[0].window, 256);
  EXPECT_EQ(result.late_p10_ppm, std::vector<int64_t>{800'000});
}

// Random heads: enough of them near boundaries that anything that depends on order would show.
std::vector<PromptRecord> RandomRecords(const HeadShape& shape, int32_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  std::vector<Mixture> base;
  for (int32_t i = 0; i < shape.num_layers * shape.num_query_heads; ++i) {
    const int64_t special = below(1'000'000);
    const int64_t punct = below(1'000'000 - special);
    base.push_back({.special = special,
                    .punct = punct,
                    .local = below(1'000'000 - special - punct),
                    .reach = 1 + below(2000)});
  }
  std::vector<PromptRecord> records;
  for (int32_t i = 0; i < count; ++i) {
    std::vector<Mixture> mixtures = base;
    for (Mixture& mix : mixtures) {
      mix.special = std::max<int64_t>(0, mix.special - below(100'000));
    }
    records.push_back(MakeRecord(shape, TestLadder(), mixtures,
                                 static_cast<int32_t>(3000 + below(1000)),
                                 i % 3 == 0 ? "code" : "prose"));
  }
  return records;
}

bool SameHead(const HeadEntry& a, const HeadEntry& b) {
  return a.type == b.type && a.confidence_ppm == b.confidence_ppm && a.margin_ppm == b.margin_ppm &&
         a.borderline == b.borderline && a.budget_tokens == b.budget_tokens &&
         a.budget_ppm == b.budget_ppm && a.window == b.window && a.heavy_ppm == b.heavy_ppm &&
         a.copy_ppm == b.copy_ppm && a.masses_ppm == b.masses_ppm && a.per_domain == b.per_domain &&
         a.query_types == b.query_types;
}

Classification ClassifyRecords(const HeadShape& shape, const std::vector<PromptRecord>& records,
                               uint64_t seed = 1) {
  ClassifierOptions options;
  options.seed = seed;
  HeadClassifier classifier = MakeClassifier(shape, options);
  for (const PromptRecord& record : records) {
    classifier.Add(record);
  }
  return classifier.Classify();
}

TEST(ClassifierTest, TheOrderOfPromptsChangesNothing) {
  const HeadShape shape{4, 6, 3};
  std::vector<PromptRecord> records = RandomRecords(shape, 24, 11);
  const Classification result = ClassifyRecords(shape, records);
  bool is_anyone_unsure = false;
  for (const HeadEntry& head : result.heads) {
    is_anyone_unsure |= head.confidence_ppm < 1'000'000;
  }
  EXPECT_TRUE(is_anyone_unsure);  // otherwise the draws were not tested
  std::mt19937_64 random(5);
  for (int round = 0; round < 3; ++round) {
    std::shuffle(records.begin(), records.end(), random);
    const Classification again = ClassifyRecords(shape, records);
    for (size_t i = 0; i < result.heads.size(); ++i) {
      EXPECT_TRUE(SameHead(result.heads[i], again.heads[i])) << i;
    }
  }
}

TEST(ClassifierTest, PermutedHeadsGivePermutedMaps) {
  const HeadShape shape{3, 4, 2};
  const std::vector<PromptRecord> records = RandomRecords(shape, 16, 3);
  const size_t per_head = records[0].mass_ppm.size() / shape.num_heads();
  std::vector<PromptRecord> permuted = records;
  const auto target = [&](size_t head) { return (head * 5 + 2) % shape.num_heads(); };
  for (size_t r = 0; r < records.size(); ++r) {
    for (size_t head = 0; head < shape.num_heads(); ++head) {
      std::copy_n(records[r].mass_ppm.begin() + static_cast<ptrdiff_t>(head * per_head), per_head,
                  permuted[r].mass_ppm.begin() + static_cast<ptrdiff_t>(target(head) * per_head));
      std::copy_n(records[r].class_mass_ppm.begin() + static_cast<ptrdiff_t>(head * 2), 2,
                  permuted[r].class_mass_ppm.begin() + static_cast<ptrdiff_t>(target(head) * 2));
    }
  }
  const Classification result = ClassifyRecords(shape, records);
  const Classification moved = ClassifyRecords(shape, permuted);
  for (size_t head = 0; head < shape.num_heads(); ++head) {
    // The order of prompts that the draws go by may differ: confidence is left out.
    EXPECT_EQ(result.heads[head].type, moved.heads[target(head)].type);
    EXPECT_EQ(result.heads[head].margin_ppm, moved.heads[target(head)].margin_ppm);
    EXPECT_EQ(result.heads[head].budget_tokens, moved.heads[target(head)].budget_tokens);
    EXPECT_EQ(result.heads[head].query_types, moved.heads[target(head)].query_types);
  }
}

TEST(ClassifierTest, DisjointHalvesOfOneSourceAgree) {
  const HeadShape shape{10, 4, 2};
  const std::vector<PromptRecord> records = RandomRecords(shape, 64, 17);
  const auto half = [&](size_t begin) {
    std::vector<PromptRecord> some;
    for (size_t i = begin; i < records.size(); i += 2) {
      some.push_back(records[i]);
    }
    return TypesOf(ClassifyRecords(shape, some));
  };
  const std::vector<HeadType> a = half(0);
  const std::vector<HeadType> b = half(1);
  size_t same = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    same += a[i] == b[i] ? 1 : 0;
  }
  EXPECT_GE(same * 10, a.size() * 9);
}

// A head that fails in about one prompt of ten flips between resamples; one that never fails does
// not. P(fewer than 10 % of 40 draws fail | p = .1) = P(Binomial(40, .1) <= 3) = .423.
TEST(ClassifierTest, ConfidenceIsTheShareOfResamplesThatAgree) {
  const HeadShape shape{1, 2, 2};
  HeadClassifier classifier = MakeClassifier(shape);
  for (int32_t i = 0; i < 40; ++i) {
    const Mixture unsure =
        i < 4 ? Mixture{.special = 940'000, .local = 60'000, .reach = 2000} : kSink;
    classifier.Add(MakeRecord(shape, TestLadder(), {unsure, kSink}, 4000));
  }
  const Classification result = classifier.Classify();
  EXPECT_EQ(result.heads[1].confidence_ppm, 1'000'000);
  EXPECT_EQ(result.heads[0].type, HeadType::kLocal);
  // 200 draws of .577: standard error .035, three of them.
  EXPECT_NEAR(static_cast<double>(result.heads[0].confidence_ppm), 577'000, 105'000);
  EXPECT_TRUE(result.heads[0].borderline);
}

TEST(ClassifierTest, DomainsThatDisagreeAreListed) {
  const HeadShape shape{1, 1, 1};
  HeadClassifier classifier = MakeClassifier(shape);
  for (int32_t i = 0; i < 8; ++i) {
    classifier.Add(MakeRecord(shape, TestLadder(), {kSink}, 4000, "prose"));
    classifier.Add(MakeRecord(shape, TestLadder(), {kLocal}, 4000, "code"));
  }
  const HeadEntry head = classifier.Classify().heads[0];
  EXPECT_EQ(head.type, HeadType::kLocal);
  EXPECT_THAT(head.per_domain, ElementsAre(std::pair("code", HeadType::kLocal),
                                           std::pair("prose", HeadType::kSpecial)));
}

// A head that reads the last 200 tokens whatever the length needs 256 of them; one that spreads
// over 30 % of the prompt needs a share.
TEST(ClassifierTest, BudgetsFollowTheLength) {
  const HeadShape shape{1, 2, 2};
  HeadClassifier classifier = MakeClassifier(shape);
  for (const int32_t tokens : {1000, 4000, 16000}) {
    for (int32_t i = 0; i < 4; ++i) {
      const Mixture share = {.local = 1'000'000, .reach = tokens * 3 / 10};
      classifier.Add(MakeRecord(shape, TestLadder(), {kLocal, share}, tokens));
    }
  }
  const Classification result = classifier.Classify();
  EXPECT_EQ(result.heads[0].budget_tokens, 256 + 5);
  EXPECT_EQ(result.heads[0].budget_ppm, 0);
  EXPECT_NEAR(static_cast<double>(result.heads[1].budget_ppm), 300'000, 2'000);
}

TEST(BudgetFitTest, IsLeastSquaresWithinItsBounds) {
  const AffineBudget exact = FitBudget({{1000, 300}, {2000, 500}, {4000, 900}});
  EXPECT_EQ(exact.tokens, 100);
  EXPECT_EQ(exact.ppm, 200'000);
  // Falling: a constant, their mean. Steeper than N: all of N.
  EXPECT_EQ(FitBudget({{1000, 300}, {2000, 200}}).tokens, 250);
  EXPECT_EQ(FitBudget({{1000, 300}, {2000, 200}}).ppm, 0);
  EXPECT_EQ(FitBudget({{1000, 100}, {2000, 1100}}).tokens, 0);
  EXPECT_LE(FitBudget({{1000, 100}, {2000, 1900}}).ppm, 1'000'000);
  EXPECT_EQ(FitBudget({{1000, 10}, {1000, 30}}).tokens, 20);
}

TEST(StopRuleTest, StopsWhenTheLastQuarterChangedFewerThanOneInAHundred) {
  const auto types = [](size_t dense) {
    std::vector<HeadType> all(200, HeadType::kLocal);
    std::fill_n(all.begin(), dense, HeadType::kDense);
    return all;
  };
  StopRule rule(128);
  EXPECT_FALSE(rule.ShouldStop(32, types(0)));
  EXPECT_FALSE(rule.ShouldStop(64, types(0)));
  EXPECT_FALSE(rule.ShouldStop(96, types(0)));
  EXPECT_FALSE(rule.ShouldStop(128, types(2)));  // 2 of 200 changed since 96
  EXPECT_FALSE(rule.ShouldStop(160, types(3)));  // 3 since 96: three quarters of 160 are 120
  EXPECT_TRUE(rule.ShouldStop(192, types(3)));   // 1 of 200 since 128
  EXPECT_FALSE(StopRule::IsDue(100));
}

}  // namespace
}  // namespace headroom::profiler
