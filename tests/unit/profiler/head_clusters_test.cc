#include "profiler/head_clusters.h"

#include <gtest/gtest.h>

#include "profiler/classifier.h"
#include "profiler/derive.h"
#include "tests/unit/profiler/profile_records.h"

namespace headroom::profiler {
namespace {

using engine::HeadEntry;
using engine::HeadType;

// Four kinds of heads, well apart, in turn.
Classification FourKinds() {
  const HeadShape shape{6, 4, 4};
  const Ladder ladder = DefaultLadder(300'000);
  HeadClassifier classifier(shape, ladder, PaperLadder(300'000), {});
  std::vector<Mixture> mixtures;
  for (int32_t layer = 0; layer < shape.num_layers; ++layer) {
    const int64_t jitter = 2'000 * layer;
    mixtures.push_back(
        {.special = 960'000 - jitter, .punct = 10'000, .local = 10'000, .reach = 50});
    mixtures.push_back(
        {.special = 20'000, .punct = 950'000 - jitter, .local = 10'000, .reach = 50});
    mixtures.push_back(
        {.special = 20'000, .punct = 10'000, .local = 960'000 - jitter, .reach = 50});
    mixtures.push_back({.special = 20'000, .punct = 10'000, .local = 10'000 + jitter, .reach = 50});
  }
  for (int i = 0; i < 4; ++i) {
    classifier.Add(MakeRecord(shape, ladder, mixtures, 4000));
  }
  return classifier.Classify();
}

TEST(HeadClustersTest, FourKindsBecomeTheFourPopularTypes) {
  Classification found = FourKinds();
  const ClusterQuality quality = ClusterHeads(4, DefaultLadder(300'000), found.reference, 64,
                                              300'000, 950'000, 7, &found.heads);
  for (size_t i = 0; i < found.heads.size(); ++i) {
    constexpr HeadType kTypes[] = {HeadType::kSpecial, HeadType::kPunct, HeadType::kLocal,
                                   HeadType::kHeavy};
    EXPECT_EQ(found.heads[i].type, kTypes[i % 4]) << i;
  }
  EXPECT_EQ(found.heads[2].window, 128);
  EXPECT_EQ(found.heads[3].heavy_ppm, 300'000);
  EXPECT_GT(quality.silhouette_ppm, 700'000);
}

TEST(HeadClustersTest, AreTheSameForOneSeed) {
  Classification a = FourKinds();
  Classification b = FourKinds();
  ClusterHeads(3, DefaultLadder(300'000), a.reference, 64, 300'000, 950'000, 9, &a.heads);
  ClusterHeads(3, DefaultLadder(300'000), b.reference, 64, 300'000, 950'000, 9, &b.heads);
  for (size_t i = 0; i < a.heads.size(); ++i) {
    EXPECT_EQ(a.heads[i].type, b.heads[i].type);
    EXPECT_EQ(a.heads[i].confidence_ppm, b.heads[i].confidence_ppm);
  }
}

TEST(HeadClustersTest, HeadsThatAreAllAlikeDoNotBreakIt) {
  Classification found = FourKinds();
  std::vector<HeadEntry> alike(6, found.heads[0]);
  ClusterHeads(4, DefaultLadder(300'000), found.reference, 64, 300'000, 950'000, 1, &alike);
  for (const HeadEntry& head : alike) {
    EXPECT_EQ(head.type, alike[0].type);
  }
}

// By hand: pairs together in both 1 + 1, in a 3 + 1... the textbook case of Hubert and Arabie's
// index: {0,0,0,1,1,1} against {0,0,1,1,2,2} gives .242424.
TEST(AdjustedRandTest, EqualsTheIndexByHand) {
  EXPECT_EQ(AdjustedRandPpm({0, 0, 1, 1}, {5, 5, 9, 9}), 1'000'000);
  EXPECT_NEAR(static_cast<double>(AdjustedRandPpm({0, 0, 0, 1, 1, 1}, {0, 0, 1, 1, 2, 2})), 242'424,
              1);
}

engine::HeadMap MapOf(const Classification& found) {
  engine::HeadMap map;
  map.heads = found.heads;
  map.profile.reference_tokens = found.reference.num_tokens;
  map.profile.reference_special = found.reference.num_special;
  map.profile.reference_punctuation = found.reference.num_punctuation;
  return map;
}

Classification ClassifyAt(int64_t theta_ppm) {
  const HeadShape shape{1, 5, 5};
  const Ladder ladder = DefaultLadder(300'000);
  ClassifierOptions options;
  options.pass.theta_ppm = theta_ppm;
  HeadClassifier classifier(shape, ladder, PaperLadder(300'000), options);
  const std::vector<Mixture> mixtures = {
      {.special = 900'000},
      {.special = 500'000, .punct = 450'000},
      {.special = 300'000, .local = 600'000, .reach = 400},
      {.special = 100'000, .punct = 100'000, .local = 700'000, .reach = 900},
      {.special = 970'000}};
  for (int i = 0; i < 8; ++i) {
    classifier.Add(MakeRecord(shape, ladder, mixtures, 4000));
  }
  ProbeRecord probe;
  probe.kind = "needle";
  probe.copy_ppm = {0, 0, 0, 0, 400'000};
  classifier.AddProbe(probe);
  return classifier.Classify();
}

// One domain and equal prompts: the map knows all that the classifier knew.
TEST(DeriveTest, EqualsAProfileAtTheOtherTheta) {
  const engine::HeadMap map = MapOf(ClassifyAt(950'000));
  for (const int64_t theta : {800'000, 900'000, 960'000, 990'000}) {
    const auto derived = DeriveHeadMap(map, theta);
    ASSERT_TRUE(derived.ok()) << StatusMessage(derived.status());
    const Classification fresh = ClassifyAt(theta);
    for (size_t i = 0; i < fresh.heads.size(); ++i) {
      EXPECT_EQ(derived->heads[i].type, fresh.heads[i].type) << theta << " " << i;
      EXPECT_EQ(derived->heads[i].window, fresh.heads[i].window);
      EXPECT_EQ(derived->heads[i].margin_ppm, fresh.heads[i].margin_ppm);
      EXPECT_EQ(derived->heads[i].budget_tokens, fresh.heads[i].budget_tokens);
      EXPECT_EQ(derived->heads[i].budget_ppm, fresh.heads[i].budget_ppm);
    }
    EXPECT_EQ(derived->heads[4].type, HeadType::kDense);  // a probe's promotion stays
    EXPECT_EQ(derived->validation.status, "unvalidated");
  }
}

// A probe that promoted a head may show in some prompts only: its mean score is below the threshold.
TEST(DeriveTest, AHeadThatAskedForLessAndIsDenseStaysDense) {
  engine::HeadMap map = MapOf(ClassifyAt(950'000));
  map.heads[4].copy_ppm = map.profile.probe_threshold_ppm - 1;
  for (const int64_t theta : {800'000, 950'000, 990'000}) {
    const auto derived = DeriveHeadMap(map, theta);
    ASSERT_TRUE(derived.ok()) << StatusMessage(derived.status());
    EXPECT_EQ(derived->heads[4].type, HeadType::kDense) << theta;
  }
}

TEST(DeriveTest, RefusesWhatItCannotRelabel) {
  engine::HeadMap map = MapOf(ClassifyAt(950'000));
  EXPECT_FALSE(DeriveHeadMap(map, 0).ok());
  EXPECT_FALSE(DeriveHeadMap(map, 1'000'001).ok());
  map.heads[0].recovery.pop_back();
  EXPECT_FALSE(DeriveHeadMap(map, 900'000).ok());
  map = MapOf(ClassifyAt(950'000));
  map.profile.classifier = "cluster/1";
  EXPECT_FALSE(DeriveHeadMap(map, 900'000).ok());
}

}  // namespace
}  // namespace headroom::profiler
