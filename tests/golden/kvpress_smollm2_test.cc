// Kept sets of kvpress 0.5.5 on SmolLM2 (data/goldens/kvpress), group size 3. Each prompt is read
// once; every case is opened from that.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/loaded_model.h"
#include "tests/golden/kvpress_golden.h"
#include "tests/support/forward_driver.h"
#include "tests/support/kv_fixture.h"

namespace headroom::testing {
namespace {

constexpr int32_t kMaxRows = 1200;

std::map<std::string, std::vector<json>> CasesByPrompt(const std::string& path) {
  std::map<std::string, std::vector<json>> cases;
  std::ifstream lines(path);
  for (std::string line; std::getline(lines, line);) {
    json golden = json::parse(line);
    if (golden["model"] == "smollm2") {
      cases[golden["id"]].push_back(std::move(golden));
    }
  }
  return cases;
}

std::vector<int32_t> PromptOf(const std::string& id) {
  std::ifstream lines(*SharedDataPath("goldens/smollm2/prompts.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const json prompt = json::parse(line);
    if (prompt["name"] == id) {
      return prompt["ids"];
    }
  }
  ADD_FAILURE() << "no prompt " << id;
  return {};
}

void CheckPrompt(KvFixture& fixture, ScoreKeeper& keeper, const std::string& id,
                 const std::vector<json>& cases) {
  std::vector<engine::KvPolicySpec> specs;
  for (const json& golden : cases) {
    specs.push_back(KvPressSpec(golden));
  }
  DrivenSequence source;
  source.prompt = PromptOf(id);
  source.chunk = kMaxRows;
  const auto num_tokens = static_cast<int32_t>(source.prompt.size());
  source.handle =
      fixture.cache().OpenSource(specs, {.num_tokens = num_tokens, .content_end = num_tokens});
  keeper.scores.clear();
  ForwardDriver driver(fixture.model(), fixture.cache());
  driver.Prefill(source);
  const std::vector<LayerScores> columns = std::move(keeper.scores);
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(id + " " + cases[i]["policy"].get<std::string>() + " " +
                 std::to_string(cases[i]["kv_retention_ppm"].get<int64_t>()));
    keeper.scores.clear();
    const StatusOr<int32_t> handle = fixture.cache().OpenFrom(source.handle, specs[i]);
    ASSERT_TRUE(handle.ok()) << StatusMessage(handle.status());
    DrivenSequence opened;
    opened.handle = *handle;
    const auto kept = driver.Kept(opened);
    const bool sums = specs[i].policy == "h2o";
    for (size_t layer = 0; layer < kept.size(); ++layer) {
      ExpectKeptSets(cases[i], layer, kept[layer], sums ? columns : keeper.scores);
    }
    driver.Close(opened);
  }
  driver.Close(source);
}

TEST(KvPressSmolLm2Test, KeepsTheSameSets) {
  const auto path = SharedDataPath("goldens/kvpress/cases.jsonl");
  const auto model_path = SmolLm2Path();
  if (!path.has_value() || !model_path.has_value()) {
    GTEST_SKIP() << "needs the SmolLM2 GGUF and the shared goldens";
  }
  auto loaded = models::LoadModel(*model_path);
  ASSERT_TRUE(loaded.ok()) << StatusMessage(loaded.status());
  auto backend = std::make_unique<ScoreKeeper>(MakeBackend("ref"));
  ScoreKeeper& keeper = *backend;
  KvFixtureOptions options;
  options.num_pages = 16'000;
  options.max_rows = kMaxRows;
  KvFixture fixture(std::move(loaded).value(), options, std::move(backend));
  size_t checked = 0;
  for (const auto& [id, cases] : CasesByPrompt(*path)) {
    CheckPrompt(fixture, keeper, id, cases);
    checked += cases.size();
  }
  EXPECT_EQ(checked, 30u);
}

}  // namespace
}  // namespace headroom::testing
