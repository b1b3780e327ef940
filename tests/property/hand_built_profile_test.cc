// From weights by formula to a served head map: the profile of the hand-built model, read from a
// file by the real loader, is the construction, head for head; copies of it with permuted weights
// refuse the map; and by the map `adaptive` answers where a uniform budget cannot.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "engine/kv/policies/policies.h"
#include "kernels/cpu/cpu_backend.h"
#include "server/profiling.h"
#include "server/runtime.h"
#include "tests/support/forward_driver.h"
#include "tests/support/hand_built_gguf.h"
#include "tests/support/hand_built_model.h"
#include "tests/support/kv_fixture.h"
#include "tests/support/model_file_writers.h"

namespace headroom::testing {
namespace {

using engine::HeadEntry;
using engine::HeadMap;
using engine::HeadType;

constexpr int32_t kTokens = 2400;  // so long that no window of the ladder covers late rows
constexpr int32_t kPrompts = 6;
constexpr int32_t kQuestions = 4;
constexpr size_t kInductionHead = 2;  // layer 1, KV head 0

class Silent final : public profiler::EvalObserver {
 public:
  void Progress(int64_t, int64_t, const std::string&) override {}
  void Finished(const std::string&, int64_t, int64_t) override {}
  bool Cancelled() const override { return false; }
};

std::string IdList(const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) {
    text += (text.empty() ? "" : ",") + std::to_string(id);
  }
  return "[" + text + "]";
}

std::string PromptLines() {
  std::string lines;
  for (uint64_t seed = 1; seed <= kPrompts; ++seed) {
    lines += "{\"token_ids\":" + IdList(HandBuiltPrompt(kTokens, seed)) + "}\n";
  }
  for (uint64_t seed = 101; seed <= 100 + kQuestions; ++seed) {
    int32_t answer = -1;
    int32_t needle = -1;
    std::vector<int32_t> ids = HandBuiltQuestion(kTokens, seed, &answer, &needle);
    const int32_t asked = ids.back();
    ids.pop_back();
    lines += "{\"context\":" + IdList(ids) + ",\"question\":[" + std::to_string(asked) +
             "],\"answer\":[" + std::to_string(answer) + "]}\n";
  }
  return lines;
}

server::RuntimeOptions OptionsOf(const std::string& model) {
  server::RuntimeOptions options;
  options.model = model;
  options.threads = 1;
  options.kv_memory_mib = 64;
  return options;
}

// With the settings of `headroom profile MODEL --prompts FILE --no-validate`.
HeadMap ProfileOf(const std::string& model) {
  server::ProfileRequest request;
  request.runtime = OptionsOf(model);
  request.files = {{"prompts.jsonl", PromptLines()}};
  request.validate = false;
  Silent observer;
  const SteadyClock clock;
  auto outcome = server::Profile(request, clock, observer);
  HEADROOM_CHECK(outcome.ok());
  return std::move(outcome->map);
}

std::string TypesText(const std::vector<HeadType>& types) {
  std::string text;
  for (size_t i = 0; i < types.size(); ++i) {
    text += std::string(i % kHandBuiltKvHeads == 0 ? "\n" : " ") + engine::HeadTypeName(types[i]);
  }
  return text;
}

std::string TypesText(const HeadMap& map) {
  std::vector<HeadType> types;
  for (const HeadEntry& head : map.heads) {
    types.push_back(head.type);
  }
  return TypesText(types);
}

models::LoadedModel ModelWithExchangedLayers() {
  models::LoadedModel model = MakeHandBuiltModel();
  std::swap(model.weights.layers[1], model.weights.layers[2]);
  return model;
}

// Files and profiles of the model and of its copy with KV heads exchanged, made once.
struct Material {
  Material()
      : model(folder.Write("model.gguf", HandBuiltGguf(MakeHandBuiltModel()))),
        swapped(folder.Write("swapped.gguf", HandBuiltGguf(MakeHandBuiltModel({.swapped = true})))),
        exchanged(folder.Write("exchanged.gguf", HandBuiltGguf(ModelWithExchangedLayers()))),
        map(ProfileOf(model)),
        swapped_map(ProfileOf(swapped)),
        map_file(folder.Write("map.json", engine::WriteHeadMap(map))) {}

  TemporaryFolder folder{"hand_built_profile"};
  std::string model;
  std::string swapped;
  std::string exchanged;
  HeadMap map;
  HeadMap swapped_map;
  std::string map_file;
};

class HandBuiltProfileTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { material_ = std::make_unique<Material>(); }
  static void TearDownTestSuite() { material_.reset(); }

  static std::string StartWithMap(const std::string& model, const std::string& check = "strict") {
    server::RuntimeOptions options = OptionsOf(model);
    options.head_map = material_->map_file;
    options.head_map_check = check;
    const SteadyClock clock;
    const auto runtime = server::Runtime::Create(options, clock);
    return runtime.ok() ? "started" : StatusMessage(runtime.status());
  }

  static std::unique_ptr<Material> material_;
};
std::unique_ptr<Material> HandBuiltProfileTest::material_;

TEST_F(HandBuiltProfileTest, TypesAreTheConstruction) {
  EXPECT_EQ(TypesText(material_->map), TypesText(HandBuiltTypes()));
  for (const HeadEntry& head : material_->map.heads) {
    EXPECT_GE(head.confidence_ppm, 990'000) << "all prompts look alike to every head";
  }
}

TEST_F(HandBuiltProfileTest, WindowsAndPunctuationAreTheConstruction) {
  for (size_t i = 0; i < material_->map.heads.size(); ++i) {
    const HeadEntry& head = material_->map.heads[i];
    // The bell of a local head has 92 % within 64 tokens and all of it within 128.
    EXPECT_EQ(head.window, head.type == HeadType::kLocal ? 128 : 0) << i;
    EXPECT_EQ(head.keeps_punctuation, head.type == HeadType::kPunct) << i;
  }
}

TEST_F(HandBuiltProfileTest, OnlyTheInductionHeadIsFoundByProbes) {
  for (size_t i = 0; i < material_->map.heads.size(); ++i) {
    if (i == kInductionHead) {
      EXPECT_GT(material_->map.heads[i].probe_ppm(), 950'000);
    } else {
      EXPECT_LT(material_->map.heads[i].probe_ppm(), 100'000) << i;
    }
  }
}

TEST_F(HandBuiltProfileTest, TspActsFromTheLayerWhereImportantTokensFreeze) {
  EXPECT_EQ(material_->map.tsp.layer, kHandBuiltFreezeLayer);
}

TEST_F(HandBuiltProfileTest, TypesAndScoresPermuteWithTheHeads) {
  const HeadMap& map = material_->map;
  const HeadMap& swapped = material_->swapped_map;
  EXPECT_NE(TypesText(map), TypesText(swapped));
  EXPECT_EQ(map.tsp.layer, swapped.tsp.layer);
  for (int32_t layer = 0; layer < kHandBuiltLayers; ++layer) {
    for (int32_t kv_head = 0; kv_head < kHandBuiltKvHeads; ++kv_head) {
      const HeadEntry& head = map.head(layer, kv_head);
      const HeadEntry& other = swapped.head(layer, 1 - kv_head);
      EXPECT_EQ(head.type, other.type) << layer << "." << kv_head;
      EXPECT_EQ(head.window, other.window);
      EXPECT_EQ(head.query_types, other.query_types);
      // The order of a row's features changes no sum of theirs: the rest is exact too.
      EXPECT_EQ(head.masses_ppm, other.masses_ppm) << layer << "." << kv_head;
      EXPECT_EQ(head.copy_ppm, other.copy_ppm);
      EXPECT_EQ(head.induction_ppm, other.induction_ppm);
    }
  }
}

TEST_F(HandBuiltProfileTest, PermutedCopiesRefuseTheMap) {
  EXPECT_EQ(StartWithMap(material_->model), "started");
  for (const std::string& copy : {material_->swapped, material_->exchanged}) {
    EXPECT_NE(StartWithMap(copy).find("other weights"), std::string::npos) << StartWithMap(copy);
    EXPECT_EQ(StartWithMap(copy, "warn"), "started");
  }
}

// What the model says behind a question that came after the prompt was compressed.
int32_t Answer(const HeadMap* map, const std::string& policy, int64_t retention_ppm,
               const std::vector<int32_t>& prompt) {
  KvFixtureOptions options;
  options.max_rows = 512;
  KvFixture fixture(MakeHandBuiltModel(), options, *kernels::CreateCpuBackend({.num_threads = 1}));
  if (map != nullptr) {
    fixture.policies().Add(
        engine::MakeAdaptivePolicy(std::make_shared<const HeadMap>(*map), "answers"));
  }
  ForwardDriver driver(fixture.model(), fixture.cache());
  return NextToken(driver, MakeKvSpec(policy, retention_ppm, 1'000'000), prompt);
}

TEST_F(HandBuiltProfileTest, TheMapAnswersWhereAUniformBudgetOrAnotherMapCannot) {
  HeadMap blind = material_->map;
  blind.heads[kInductionHead].type = HeadType::kSpecial;
  int uniform_right = 0;
  int blind_right = 0;
  int swapped_right = 0;
  for (uint64_t seed = 201; seed <= 203; ++seed) {
    int32_t answer = -1;
    int32_t needle = -1;
    const std::vector<int32_t> prompt = HandBuiltQuestion(kTokens, seed, &answer, &needle);
    EXPECT_EQ(Answer(nullptr, "full", 1'000'000, prompt), answer);
    EXPECT_EQ(Answer(&material_->map, "adaptive", 200'000, prompt), answer);
    uniform_right += Answer(nullptr, "fastkv", 200'000, prompt) == answer ? 1 : 0;
    blind_right += Answer(&blind, "adaptive", 200'000, prompt) == answer ? 1 : 0;
    swapped_right += Answer(&material_->swapped_map, "adaptive", 200'000, prompt) == answer ? 1 : 0;
  }
  // A fifth of the cache holds the needle by luck now and then.
  EXPECT_LE(uniform_right, 1);
  EXPECT_LE(blind_right, 1);
  EXPECT_LE(swapped_right, 1);
}

}  // namespace
}  // namespace headroom::testing
