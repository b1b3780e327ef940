#include "engine/kv/head_map_binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/sha256.h"
#include "tests/support/head_maps.h"

namespace headroom::engine {
namespace {

using ::headroom::testing::MakeHeadMap;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr bool kRefused = true;
constexpr bool kServed = false;

struct Case {
  const char* name;
  std::function<void(ModelIdentity*, HeadMap*)> change;
  bool strict_refuses;
  bool warn_refuses;
  const char* message;  // a part of the error or of the only warning
};

// The table of failures of docs/profiling.md, row by row.
const Case kCases[] = {
    {"layers", [](ModelIdentity* m, HeadMap*) { m->model.num_layers = 9; }, kRefused, kRefused,
     "got one of 4 layers of 4 query and 2 KV heads of 16, wanted 9 layers"},
    {"KV heads", [](ModelIdentity* m, HeadMap*) { m->model.num_kv_heads = 4; }, kRefused, kRefused,
     "another model"},
    {"RoPE", [](ModelIdentity* m, HeadMap*) { m->model.arch_hash = Sha256Text("rope"); }, kRefused,
     kRefused, "another architecture"},
    {"vocabulary", [](ModelIdentity* m, HeadMap*) { m->tokenizer.vocab_hash = Sha256Text("v"); },
     kRefused, kRefused, "another tokenizer (vocabulary)"},
    {"no tokenizer", [](ModelIdentity* m, HeadMap*) { m->tokenizer = {}; }, kRefused, kRefused,
     "wanted none"},
    {"special ids", [](ModelIdentity* m, HeadMap*) { m->tokenizer.special_ids.push_back(9); },
     kRefused, kRefused, "got 3 ids, wanted 4 ids"},
    {"punctuation", [](ModelIdentity* m, HeadMap*) { m->tokenizer.punct_ids_hash = ""; }, kRefused,
     kRefused, "(punctuation)"},
    {"weights", [](ModelIdentity* m, HeadMap*) { m->model.weights_hash = Sha256Text("w"); },
     kRefused, kServed, "made on other weights"},
    {"bound weights", [](ModelIdentity* m, HeadMap* map) { m->model.weights_hash = map->bound[1]; },
     kServed, kServed, "bound to these"},
    {"chat template",
     [](ModelIdentity* m, HeadMap*) { m->tokenizer.chat_template_hash = Sha256Text("t"); }, kServed,
     kServed, "another chat template"},
    {"failed validation",
     [](ModelIdentity*, HeadMap* map) {
       map->validation.status = "fail";
       map->validation.reasons = {"loses needles"};
     },
     kRefused, kServed, "failed its validation: loses needles"},
    {"no validation", [](ModelIdentity*, HeadMap* map) { map->validation.status = "unvalidated"; },
     kServed, kServed, "not validated"},
};

ModelIdentity IdentityOf(const HeadMap& map) {
  return {.model = map.model, .tokenizer = map.tokenizer};
}

TEST(HeadMapBindingTest, TheModelOfTheMapIsAcceptedWithoutAWord) {
  const HeadMap map = MakeHeadMap(4, 2, 2);
  for (const HeadMapCheck check : {HeadMapCheck::kStrict, HeadMapCheck::kWarn}) {
    const auto binding = CheckBinding(map, IdentityOf(map), check);
    ASSERT_TRUE(binding.ok()) << binding.status();
    EXPECT_THAT(binding->warnings, IsEmpty());
    EXPECT_FALSE(binding->other_weights);
  }
}

TEST(HeadMapBindingTest, FollowsTheTableOfFailures) {
  for (const Case& test : kCases) {
    HeadMap map = MakeHeadMap(4, 2, 2);
    ModelIdentity identity = IdentityOf(map);
    test.change(&identity, &map);
    for (const HeadMapCheck check : {HeadMapCheck::kStrict, HeadMapCheck::kWarn}) {
      const bool refuses = check == HeadMapCheck::kStrict ? test.strict_refuses : test.warn_refuses;
      const auto binding = CheckBinding(map, identity, check);
      ASSERT_EQ(binding.ok(), !refuses) << test.name;
      if (refuses) {
        EXPECT_EQ(binding.status().code(), StatusCode::kFailedPrecondition);
        EXPECT_THAT(StatusMessage(binding.status()), HasSubstr(test.message)) << test.name;
      } else {
        EXPECT_THAT(binding->warnings, ElementsAre(HasSubstr(test.message))) << test.name;
        EXPECT_EQ(binding->other_weights, std::string(test.name) == "weights");
      }
    }
  }
}

TEST(HeadMapBindingTest, OnOtherWeightsUnsureCheapHeadsCountAsHeavy) {
  HeadMap map = MakeHeadMap(2, 5, 1);  // heads 0..4: special, punct, local, heavy, dense
  for (size_t i : {0u, 1u, 2u, 3u, 4u}) {
    map.heads[i].confidence_ppm = 949'999;
  }
  map.heads[6].confidence_ppm = 950'000;
  const auto bound = BindHeadMap(map, {.warnings = {}, .other_weights = true});
  EXPECT_EQ(bound->heads[0].type, HeadType::kHeavy);
  EXPECT_EQ(bound->heads[1].type, HeadType::kHeavy);
  EXPECT_EQ(bound->heads[2].type, HeadType::kHeavy);
  EXPECT_EQ(bound->heads[4].type, HeadType::kDense);
  EXPECT_EQ(bound->heads[6].type, HeadType::kPunct);
  EXPECT_EQ(BindHeadMap(map, {})->heads[0].type, HeadType::kSpecial);
}

TEST(HeadMapBindingTest, AddsASiblingOnce) {
  const HeadMap map = MakeHeadMap(1, 1, 1);
  const std::string hash = Sha256Text("sibling");
  const HeadMap once = AddBound(map, hash);
  EXPECT_EQ(once.bound.size(), map.bound.size() + 1);
  EXPECT_TRUE(ParseHeadMap(WriteHeadMap(once)).ok());
  EXPECT_EQ(AddBound(once, hash).bound, once.bound);
  EXPECT_EQ(AddBound(map, map.model.weights_hash).bound, map.bound);
}

TEST(HeadMapBindingTest, KnowsTheLengthOfTheProfilesPrompts) {
  HeadMap map = MakeHeadMap(1, 1, 1);
  EXPECT_EQ(ProfiledTokens(map), 2000);  // 120,000 tokens in 60 prompts
  map.profile.corpus = {{"none", Sha256Text(""), 0, 0}};
  EXPECT_EQ(ProfiledTokens(map), 0);
}

TEST(HeadMapBindingTest, IdentifiesAModelWithATokenizer) {
  const auto model = models::LoadModel("builtin:tiny");
  ASSERT_TRUE(model.ok()) << model.status();
  const ModelIdentity identity = IdentifyModel(*model, 2);
  EXPECT_EQ(identity.model.num_layers, model->config.num_hidden_layers);
  EXPECT_TRUE(IsSha256Text(identity.model.weights_hash));
  EXPECT_TRUE(IsSha256Text(identity.tokenizer.vocab_hash));
  EXPECT_THAT(identity.tokenizer.special_ids, ElementsAre(256, 257));
  EXPECT_EQ(identity.tokenizer.punct_rule, kPunctRule);
}

TEST(HeadMapBindingTest, IdentifiesAModelWithoutATokenizer) {
  const auto model = models::LoadModel("builtin:needle-1hop");
  ASSERT_TRUE(model.ok()) << model.status();
  const ModelIdentity identity = IdentifyModel(*model, 1);
  EXPECT_EQ(identity.tokenizer.vocab_hash, "");
  EXPECT_THAT(identity.tokenizer.special_ids, IsEmpty());
  EXPECT_EQ(identity.tokenizer.punct_ids_hash, "");
}

}  // namespace
}  // namespace headroom::engine
