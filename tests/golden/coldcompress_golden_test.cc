// FastGen on all rows against cold-compress' KVCacheHybrid (data/goldens/coldcompress): masses,
// rungs and kept sets of every query head. The published class works per query head, so the models
// are expanded to one KV head per query head, which computes the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/kv/column_sums.h"
#include "engine/kv/ladder.h"
#include "engine/kv/policies/policies.h"
#include "models/loaded_model.h"
#include "tests/golden/kept_set_golden.h"
#include "tests/support/forward_driver.h"
#include "tests/support/kv_fixture.h"

namespace headroom::testing {
namespace {

using engine::TokenClass;

constexpr int32_t kMaxRows = 512;
constexpr double kMassTolerance = 1e-5;  // the goldens have six decimals

bool IsSpecial(int32_t token) { return token == 510 || (token >= 256 && token < 276); }
bool IsPunctuation(int32_t token) {
  return token > 0 && token < 128 && std::strchr(".,!?;:-'\"()", token) != nullptr;
}

std::shared_ptr<const std::vector<TokenClass>> ClassesOf(const std::vector<int32_t>& prompt) {
  auto classes = std::make_shared<std::vector<TokenClass>>();
  for (const int32_t token : prompt) {
    classes->push_back(IsSpecial(token)       ? TokenClass::kSpecial
                       : IsPunctuation(token) ? TokenClass::kPunctuation
                                              : TokenClass::kOther);
  }
  return classes;
}

// The rows of each KV head's projection, once per query head of its group.
TensorView Expand(const TensorView& weight, const models::ModelConfig& config,
                  std::vector<std::vector<float>>& storage) {
  HEADROOM_CHECK(weight.dtype == DType::kF32);
  const auto* values = static_cast<const float*>(weight.data);
  const int64_t head_size = int64_t{config.head_dim} * weight.cols;
  std::vector<float>& expanded = storage.emplace_back();
  for (int32_t head = 0; head < config.num_attention_heads; ++head) {
    const float* rows = values + head / config.group_size() * head_size;
    expanded.insert(expanded.end(), rows, rows + head_size);
  }
  TensorView view = weight;
  view.data = expanded.data();
  view.rows = int64_t{config.num_attention_heads} * config.head_dim;
  return view;
}

struct ExpandedModel {
  models::LoadedModel loaded;
  std::vector<std::vector<float>> storage;
};

ExpandedModel LoadExpanded(const std::string& path) {
  ExpandedModel model;
  auto loaded = models::LoadModel(path);
  HEADROOM_CHECK(loaded.ok());
  model.loaded = std::move(loaded).value();
  model.storage.reserve(2 * model.loaded.weights.layers.size());
  for (models::LayerWeights& layer : model.loaded.weights.layers) {
    layer.k_proj = Expand(layer.k_proj, model.loaded.config, model.storage);
    layer.v_proj = Expand(layer.v_proj, model.loaded.config, model.storage);
  }
  model.loaded.config.num_key_value_heads = model.loaded.config.num_attention_heads;
  return model;
}

// Keeps the column sums of each layer, in order of the layers.
class SumsKeeper final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void ColumnScores(const kernels::ColumnScoresParams& params) override {
    ForwardingBackend::ColumnScores(params);
    engine::ColumnSums layer;
    layer.num_heads = static_cast<int32_t>(params.sums.size());
    layer.num_slots = params.heads[0].num_slots;
    for (size_t head = 0; head < params.sums.size(); ++head) {
      layer.sums.insert(layer.sums.end(), params.sums[head], params.sums[head] + layer.num_slots);
      layer.near.insert(layer.near.end(), params.near_sums[head],
                        params.near_sums[head] + layer.num_slots);
    }
    layers.push_back(std::move(layer));
  }
  std::vector<engine::ColumnSums> layers;
};

engine::KvPolicySpec SpecOf(const json& golden, const std::string& theta) {
  engine::KvPolicySpec spec;
  spec.policy = "fastgen";
  spec.options.all_rows = true;
  spec.options.fraction_ppm = std::llround(golden["fraction"].get<double>() * 1e6);
  spec.recovery_ppm = std::llround(std::stod(theta) * 1e6);
  spec.sink_tokens = 4;
  spec.min_prompt = 0;
  return spec;
}

class ColdCompressGoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  void Check(const json& golden, KvFixture& fixture, SumsKeeper& keeper) {
    DrivenSequence source;
    source.prompt = prompts_.Get(golden["prompts"], golden["id"]);
    source.classes = ClassesOf(source.prompt);
    source.chunk = kMaxRows;
    std::vector<engine::KvPolicySpec> specs;
    for (const auto& [theta, rungs] : golden["layers"][0]["rung"].items()) {
      specs.push_back(SpecOf(golden, theta));
    }
    const auto num_tokens = static_cast<int32_t>(source.prompt.size());
    const engine::PromptInfo prompt = {
        .num_tokens = num_tokens, .content_end = num_tokens, .classes = source.classes};
    keeper.layers.clear();
    source.handle = fixture.cache().OpenSource(specs, prompt);
    ForwardDriver driver(fixture.model(), fixture.cache());
    driver.Prefill(source);
    CheckMasses(golden, fixture, keeper, specs.front(), prompt);
    for (const auto& [theta, rungs] : golden["layers"][0]["rung"].items()) {
      SCOPED_TRACE("theta " + theta);
      DrivenSequence opened;
      opened.handle = fixture.cache().OpenFrom(source.handle, SpecOf(golden, theta)).value();
      CheckKept(golden, theta, keeper, driver.Kept(opened));
      driver.Close(opened);
    }
    driver.Close(source);
  }

  static void CheckMasses(const json& golden, KvFixture& fixture, const SumsKeeper& keeper,
                          const engine::KvPolicySpec& spec, const engine::PromptInfo& prompt) {
    const auto policy = engine::MakeFastGenPolicy();
    const engine::KvModelShape shape = fixture.shape();
    const engine::ScoreNeeds needs = policy->Needs(spec, shape, prompt);
    engine::LadderExecutor ladders(fixture.backend());
    LayerScores scores;
    for (size_t layer = 0; layer < golden["layers"].size(); ++layer) {
      engine::ColumnsToScores(keeper.layers[layer], needs.columns.front(), shape.num_kv_heads,
                              /*mean=*/true, scores);
      const engine::LadderInput input = {.num_slots = prompt.num_tokens,
                                         .group_size = 1,
                                         .scores = &scores,
                                         .mass = &keeper.layers[layer],
                                         .num_mass_rows = prompt.num_tokens,
                                         .classes = *prompt.classes};
      const engine::LayerPlan plan =
          policy->PlanPrefill(spec, shape, prompt, static_cast<int32_t>(layer), prompt.num_tokens);
      for (int32_t head = 0; head < shape.num_kv_heads; ++head) {
        const size_t index = static_cast<size_t>(head);
        for (int32_t rung = 0; rung < 4; ++rung) {
          const double wanted = golden["layers"][layer]["mass"][index][static_cast<size_t>(rung)];
          EXPECT_NEAR(ladders.Mass(plan.heads[index], input, rung, head), wanted, kMassTolerance)
              << "layer " << layer << " head " << head << " rung " << rung;
        }
      }
    }
  }

  // The rung is read off what is kept: equal sets at the golden's rung, everything at "full".
  static void CheckKept(const json& golden, const std::string& theta, const SumsKeeper& keeper,
                        const std::vector<std::vector<std::vector<int32_t>>>& kept) {
    const int32_t num_tokens = golden["tokens"];
    for (size_t layer = 0; layer < kept.size(); ++layer) {
      const json& wanted = golden["layers"][layer];
      for (size_t head = 0; head < kept[layer].size(); ++head) {
        SCOPED_TRACE("layer " + std::to_string(layer) + " head " + std::to_string(head));
        const size_t rung = wanted["rung"][theta][head];
        EXPECT_EQ(kept[layer][head].size(), wanted["kept_count"][theta][head]);
        if (rung == 4) {
          EXPECT_EQ(kept[layer][head].size(), static_cast<size_t>(num_tokens));
          continue;
        }
        // Column means decide; all but the heavy columns are in both sets.
        std::vector<float> means;
        for (int32_t slot = 0; slot < num_tokens; ++slot) {
          const engine::ColumnSums& sums = keeper.layers[layer];
          means.push_back(static_cast<float>(
              static_cast<double>(
                  sums.sums[head * static_cast<size_t>(num_tokens) + static_cast<size_t>(slot)]) /
              (num_tokens - slot)));
        }
        const std::vector<int32_t> set = wanted["kept_by_rung"][head][rung];
        EXPECT_TRUE(
            SameButForHeavyTies(wanted["kept_by_rung"][head], rung, set, kept[layer][head], means));
      }
    }
  }

  // The cut among the heavy columns of a rung: those that the rungs below and the window lack.
  static ::testing::AssertionResult SameButForHeavyTies(const json& rungs, size_t rung,
                                                        const std::vector<int32_t>& wanted,
                                                        const std::vector<int32_t>& got,
                                                        const std::vector<float>& means) {
    if (got == wanted) {
      return ::testing::AssertionSuccess();
    }
    if (rung < 2) {
      return ::testing::AssertionFailure() << "a rung without heavy columns differs";
    }
    const std::vector<int32_t> base = rungs[1];
    std::vector<int32_t> heavy;
    std::set_difference(wanted.begin(), wanted.end(), base.begin(), base.end(),
                        std::back_inserter(heavy));
    if (rung == 3) {
      // The window is the run of columns that ends at the last one.
      auto window = wanted.rbegin();
      int32_t next = wanted.back();
      while (window != wanted.rend() && *window == next) {
        ++window;
        --next;
      }
      std::erase_if(heavy, [&](int32_t slot) { return slot > next; });
    }
    return DifferOnlyAt({CutOf(heavy, means)}, got, wanted, means);
  }

  NeedlePrompts prompts_;
};

TEST_P(ColdCompressGoldenTest, MassesRungsAndKeptSetsAreEqual) {
  const auto path = SharedDataPath("goldens/coldcompress/cases.json");
  const auto model_path = SharedDataPath("models/" + GetParam());
  if (!path.has_value() || !model_path.has_value()) {
    GTEST_SKIP() << "goldens/coldcompress is absent: set HEADROOM_SHARED_DATA";
  }
  ExpandedModel model = LoadExpanded(*model_path);
  auto backend = std::make_unique<SumsKeeper>(MakeBackend("cpu"));
  SumsKeeper& keeper = *backend;
  KvFixtureOptions options;
  options.num_pages = 4000;
  options.max_rows = kMaxRows;
  KvFixture fixture(std::move(model.loaded), options, std::move(backend));
  int checked = 0;
  for (const json& golden : ReadJson(*path)) {
    if (golden["model"] == GetParam()) {
      SCOPED_TRACE(golden["id"].get<std::string>() + " f " +
                   std::to_string(golden["fraction"].get<double>()));
      Check(golden, fixture, keeper);
      ++checked;
    }
  }
  EXPECT_EQ(checked, GetParam() == "needle-1hop" ? 12 : 6);
}

INSTANTIATE_TEST_SUITE_P(Models, ColdCompressGoldenTest,
                         ::testing::Values("needle-1hop", "needle-2hop"));

}  // namespace
}  // namespace headroom::testing
