// Kept sets and TSP sets of the published FastKV code (data/goldens/fastkv): single layers through
// WindowScores and the executor, and whole prefills of the needle models.
//
// A set may differ only in slots whose pooled score lies within 1e-4 (relative) of the score at the
// cut: max pooling makes plateaus, and the published top-k orders ties in no defined way.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/mapped_file.h"
#include "engine/kv/policies/policies.h"
#include "engine/kv/retention.h"
#include "kernels/dequantize.h"
#include "models/loaded_model.h"
#include "models/safetensors.h"
#include "tests/golden/kept_set_golden.h"
#include "tests/support/forward_driver.h"
#include "tests/support/kv_fixture.h"
#include "tests/support/test_data.h"

namespace headroom::testing {
namespace {

constexpr double kLogitTolerance = 1e-3;

engine::KvPolicySpec GoldenSpec(const json& golden) {
  engine::KvPolicySpec spec;
  spec.policy = "fastkv";
  spec.retention_ppm = golden["kv_retention_ppm"];
  spec.tsp_ppm = golden["tsp_ratio_ppm"];
  spec.window = 8;
  spec.window_raw = true;
  spec.sink_tokens = 0;
  spec.pool = golden["pooling"] == "avg" ? kernels::PoolKind::kAvg : kernels::PoolKind::kMax;
  spec.pool_width = 7;
  spec.min_prompt = 0;
  spec.tsp_min_prompt = 0;
  return spec;
}

std::vector<float> ToFloats(const TensorView& view) {
  std::vector<float> values(static_cast<size_t>(view.rows * view.cols));
  kernels::DequantizeRow(view.dtype, view.data, view.rows * view.cols, values.data());
  return values;
}

class FastKvGoldenTest : public ::testing::TestWithParam<const char*> {};

// One layer's keys and queries in pages and backend memory.
struct LayerCase {
  std::unique_ptr<kernels::Buffer> pages;
  std::unique_ptr<kernels::Buffer> queries;  // [8, heads * head_dim]
  kernels::KvArena arena;
  std::vector<std::vector<int32_t>> page_lists;  // [kv heads]
  std::vector<kernels::KvHeadView> views;        // [kv heads]
};

LayerCase LoadLayerCase(const json& golden, const std::vector<float>& k,
                        const std::vector<float>& q, kernels::Backend& backend) {
  LayerCase layer;
  const int32_t num_heads = golden["heads"];
  const int32_t num_kv_heads = golden["kv_heads"];
  const int32_t head_dim = golden["head_dim"];
  const int32_t num_tokens = golden["tokens"];
  layer.arena.geometry = {.num_kv_heads = num_kv_heads,
                          .group_size = num_heads / num_kv_heads,
                          .head_dim = head_dim,
                          .dtype = kernels::KvDType::kF32};
  layer.arena.page_bytes = backend.KvPageBytes(layer.arena.geometry);
  const int32_t pages_per_head = (num_tokens + kernels::kPageSize - 1) / kernels::kPageSize;
  layer.pages =
      backend.Allocate(layer.arena.page_bytes * static_cast<size_t>(pages_per_head * num_kv_heads))
          .value();
  layer.arena.base = layer.pages->data();
  const std::vector<float> v(static_cast<size_t>(head_dim), 0.0f);
  for (int32_t head = 0; head < num_kv_heads; ++head) {
    layer.page_lists.emplace_back();
    for (int32_t page = 0; page < pages_per_head; ++page) {
      layer.page_lists.back().push_back(head * pages_per_head + page);
    }
    for (int32_t token = 0; token < num_tokens; ++token) {
      const int64_t slot = int64_t{head} * pages_per_head * kernels::kPageSize + token;
      backend.WriteKvSlot(layer.arena, slot,
                          k.data() + (int64_t{head} * num_tokens + token) * head_dim, v.data());
    }
  }
  for (const std::vector<int32_t>& list : layer.page_lists) {
    layer.views.push_back({.pages = list.data(), .num_slots = num_tokens});
  }
  layer.queries = backend.Allocate(q.size() * sizeof(float)).value();
  for (int64_t head = 0; head < num_heads; ++head) {
    for (int64_t row = 0; row < 8; ++row) {
      std::copy_n(q.data() + (head * 8 + row) * head_dim, head_dim,
                  layer.queries->floats() + (row * num_heads + head) * head_dim);
    }
  }
  return layer;
}

LayerScores ScoreLayer(const json& golden, const LayerCase& layer, const engine::KvPolicySpec& spec,
                       kernels::Backend& backend) {
  const int32_t num_tokens = golden["tokens"];
  const int32_t head_dim = golden["head_dim"];
  LayerScores scores;
  scores.num_columns = num_tokens - 8;
  const size_t size = layer.views.size() * static_cast<size_t>(scores.num_columns);
  scores.pooled.resize(size);
  scores.raw.resize(size);
  std::vector<int32_t> visible;
  for (int32_t row = 0; row < 8; ++row) {
    visible.push_back(num_tokens - 8 + row + 1);
  }
  const Status reserved = backend.ReserveWorkspace({.max_rows = 8,
                                                    .max_slots = num_tokens,
                                                    .num_query_heads = golden["heads"],
                                                    .head_dim = head_dim});
  EXPECT_TRUE(reserved.ok());
  backend.WindowScores({.queries = layer.queries->floats(),
                        .query_stride = golden["heads"].get<int64_t>() * head_dim,
                        .num_window_rows = 8,
                        .visible = visible.data(),
                        .scale = 1.0f / std::sqrt(static_cast<float>(head_dim)),
                        .arena = layer.arena,
                        .heads = layer.views.data(),
                        .num_columns = scores.num_columns,
                        .pool = spec.pool,
                        .pool_width = spec.pool_width,
                        .pooled = scores.pooled.data(),
                        .raw = scores.raw.data()});
  return scores;
}

void CheckLayerCase(const json& golden, const std::vector<float>& k, const std::vector<float>& q,
                    kernels::Backend& backend) {
  const engine::KvPolicySpec spec = GoldenSpec(golden);
  const int32_t num_tokens = golden["tokens"];
  const LayerCase layer = LoadLayerCase(golden, k, q, backend);
  const LayerScores scores = ScoreLayer(golden, layer, spec, backend);
  const engine::KvModelShape shape = {
      .num_layers = 2, .num_kv_heads = golden["kv_heads"], .tsp_layer = 0};
  const engine::PromptInfo prompt = {.num_tokens = num_tokens, .content_end = num_tokens};
  const auto policy = engine::MakeFastKvPolicy();
  engine::RetentionExecutor executor(backend);
  const engine::LayerPlan plan = policy->PlanPrefill(spec, shape, prompt, 0, num_tokens);
  std::vector<int32_t> kept;
  for (size_t head = 0; head < plan.heads.size(); ++head) {
    executor.SelectHead(plan.heads[head], num_tokens, &scores, static_cast<int32_t>(head), kept);
    EXPECT_TRUE(SameButForTies(kept, golden["kept"][head], HeadScores(scores, head)))
        << "kv head " << head;
  }
  executor.SelectRows(policy->PlanTsp(spec, shape, prompt, 0), num_tokens, &scores, {},
                      shape.num_kv_heads, kept);
  EXPECT_TRUE(SameButForTies(kept, golden["tsp"], SummedScores(scores, plan.heads.size())));
}

TEST_P(FastKvGoldenTest, SingleLayersKeepThePublishedSets) {
  const auto cases_path = SharedDataPath("goldens/fastkv/layer_cases.json");
  const auto tensors_path = SharedDataPath("goldens/fastkv/layer_cases.safetensors");
  if (!cases_path.has_value() || !tensors_path.has_value()) {
    GTEST_SKIP() << "goldens/fastkv is absent: set HEADROOM_SHARED_DATA";
  }
  auto file = MappedFile::Open(*tensors_path);
  ASSERT_TRUE(file.ok());
  auto tensors = models::ParseSafetensors(file.value()->bytes(), *tensors_path);
  ASSERT_TRUE(tensors.ok()) << StatusMessage(tensors.status());
  std::map<std::string, TensorView> views;
  for (const models::NamedTensor& tensor : tensors.value()) {
    views[tensor.name] = tensor.view;
  }
  const std::unique_ptr<kernels::Backend> backend = MakeBackend(GetParam());
  const json cases = ReadJson(*cases_path);
  ASSERT_EQ(cases.size(), 48u);
  for (const json& golden : cases) {
    const std::string prefix = "case" + std::to_string(golden["case"].get<int>());
    SCOPED_TRACE(prefix);
    CheckLayerCase(golden, ToFloats(views.at(prefix + ".k")), ToFloats(views.at(prefix + ".q")),
                   *backend);
  }
}

// fastkv with the rows above the TSP layer given.
class ForcedTspPolicy final : public engine::KvPolicy {
 public:
  std::string name() const override { return "forced_tsp"; }
  Status Validate(const engine::KvPolicySpec& spec) const override {
    return inner_->Validate(spec);
  }
  engine::ScoreNeeds Needs(const engine::KvPolicySpec& spec, const engine::KvModelShape& shape,
                           const engine::PromptInfo& prompt) const override {
    return inner_->Needs(spec, shape, prompt);
  }
  std::vector<engine::PrefillPhase> PlanPhases(const engine::KvPolicySpec& spec,
                                               const engine::KvModelShape& shape,
                                               const engine::PromptInfo& prompt) const override {
    return inner_->PlanPhases(spec, shape, prompt);
  }
  engine::LayerPlan PlanPrefill(const engine::KvPolicySpec& spec, const engine::KvModelShape& shape,
                                const engine::PromptInfo& prompt, int32_t layer,
                                int32_t num_slots) const override {
    return inner_->PlanPrefill(spec, shape, prompt, layer, num_slots);
  }
  engine::TspPlan PlanTsp(const engine::KvPolicySpec& spec, const engine::KvModelShape& shape,
                          const engine::PromptInfo& prompt, int32_t phase) const override {
    engine::TspPlan plan;
    plan.num_rows = static_cast<int32_t>(rows.size());
    plan.keep_slots = rows;
    return plan;
  }
  engine::DecodePlan PlanDecode(const engine::KvPolicySpec& spec, const engine::KvModelShape& shape,
                                const engine::PromptInfo& prompt, int32_t layer,
                                int32_t kv_head) const override {
    return {};
  }

  std::vector<int32_t> rows;  // prompt positions, ascending

 private:
  std::unique_ptr<engine::KvPolicy> inner_ = engine::MakeFastKvPolicy();
};

class ModelCases {
 public:
  ModelCases(const std::string& model_name, const std::string& backend_name)
      : cases_(ReadJson(*SharedDataPath("goldens/fastkv/model_cases.json"))),
        model_name_(model_name) {
    auto loaded = models::LoadModel(*SharedDataPath("models/" + model_name));
    HEADROOM_CHECK(loaded.ok());
    auto backend = std::make_unique<ScoreKeeper>(MakeBackend(backend_name));
    keeper_ = backend.get();
    KvFixtureOptions options;
    options.tsp_layer = 2;
    options.num_pages = 2000;
    options.max_rows = 256;
    fixture_ = std::make_unique<KvFixture>(std::move(loaded).value(), options, std::move(backend));
    auto forced = std::make_unique<ForcedTspPolicy>();
    forced_ = forced.get();
    fixture_->policies().Add(std::move(forced));
  }

  int CheckAll() {
    int checked = 0;
    for (const json& golden : cases_) {
      if (golden["model"] == model_name_) {
        SCOPED_TRACE(golden["id"].get<std::string>() + " " + golden.dump().substr(0, 200));
        Check(golden);
        ++checked;
      }
    }
    return checked;
  }

 private:
  DrivenSequence Prefill(const json& golden, const std::string& policy) {
    keeper_->scores.clear();
    DrivenSequence sequence;
    sequence.prompt = prompts_.Get(golden["prompts"], golden["id"]);
    EXPECT_EQ(sequence.prompt.size(), golden["tokens"].get<size_t>());
    sequence.spec = GoldenSpec(golden);
    sequence.spec.policy = policy;
    sequence.chunk = 256;
    ForwardDriver driver(fixture_->model(), fixture_->cache());
    driver.Open(sequence);
    driver.Run({&sequence});
    const auto rows = fixture_->cache().phase_rows(sequence.handle, 1);
    tsp_.assign(rows.begin(), rows.end());
    driver.Close(sequence);
    return sequence;
  }

  void Check(const json& golden) {
    const std::vector<int32_t> wanted_tsp = golden["tsp"];
    DrivenSequence sequence = Prefill(golden, "fastkv");
    ASSERT_EQ(keeper_->scores.size(), 6u);
    EXPECT_TRUE(SameButForTies(tsp_, wanted_tsp, SummedScores(keeper_->scores[2], 2)));
    if (tsp_ != wanted_tsp) {
      forced_->rows = wanted_tsp;
      sequence = Prefill(golden, "forced_tsp");
      ASSERT_EQ(tsp_, wanted_tsp);
    }
    for (size_t layer = 0; layer < 6; ++layer) {
      for (size_t head = 0; head < 2; ++head) {
        const std::vector<int32_t> wanted = golden["kept"][layer][head];
        EXPECT_TRUE(SameButForTies(Slots(sequence.kept[0][layer][head], layer),
                                   Slots(wanted, layer), HeadScores(keeper_->scores[layer], head)))
            << "layer " << layer << " kv head " << head;
      }
    }
    const std::vector<float>& logits = sequence.logits.front();
    const auto best = std::max_element(logits.begin(), logits.end());
    EXPECT_EQ(best - logits.begin(), golden["next_token"].get<int>());
    EXPECT_NEAR(*best, golden["next_logit"].get<double>(), kLogitTolerance);
  }

  // Positions as slots of what the layer saw.
  std::vector<int32_t> Slots(const std::vector<int32_t>& positions, size_t layer) const {
    if (layer <= 2) {
      return positions;
    }
    std::vector<int32_t> slots;
    for (const int32_t position : positions) {
      slots.push_back(static_cast<int32_t>(std::lower_bound(tsp_.begin(), tsp_.end(), position) -
                                           tsp_.begin()));
    }
    return slots;
  }

  json cases_;
  std::string model_name_;
  NeedlePrompts prompts_;
  std::unique_ptr<KvFixture> fixture_;
  ScoreKeeper* keeper_ = nullptr;
  ForcedTspPolicy* forced_ = nullptr;
  std::vector<int32_t> tsp_;
};

TEST_P(FastKvGoldenTest, WholePrefillsKeepThePublishedSets) {
  if (!SharedDataPath("goldens/fastkv/model_cases.json").has_value()) {
    GTEST_SKIP() << "goldens/fastkv is absent: set HEADROOM_SHARED_DATA";
  }
  int checked = 0;
  for (const char* model : {"needle-1hop", "needle-2hop"}) {
    checked += ModelCases(model, GetParam()).CheckAll();
  }
  EXPECT_EQ(checked, 54);
}

INSTANTIATE_TEST_SUITE_P(Backends, FastKvGoldenTest, ::testing::Values("ref", "cpu"),
                         [](const auto& backend) { return std::string(backend.param); });

}  // namespace
}  // namespace headroom::testing
