// Kept sets of kvpress 0.5.5 on the needle models (data/goldens/kvpress): its SnapKV is fastkv's
// retention without TSP and with average pooling, its StreamingLLM is streaming.
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/loaded_model.h"
#include "tests/golden/kept_set_golden.h"
#include "tests/support/forward_driver.h"
#include "tests/support/kv_fixture.h"

namespace headroom::testing {
namespace {

engine::KvPolicySpec KvPressSpec(const json& golden) {
  engine::KvPolicySpec spec;
  const bool streaming = golden["policy"] == "streaming";
  spec.policy = streaming ? "streaming" : "fastkv";
  spec.retention_ppm = golden["kv_retention_ppm"];
  spec.window = 8;
  spec.window_raw = true;
  spec.sink_tokens = streaming ? 4 : 0;
  spec.pool = kernels::PoolKind::kAvg;
  spec.pool_width = 7;
  spec.min_prompt = 0;
  return spec;
}

class KvPressGoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  void Check(const json& golden, KvFixture& fixture, ScoreKeeper& keeper) {
    keeper.scores.clear();
    DrivenSequence sequence;
    sequence.prompt = prompts_.Get(golden["prompts"], golden["id"]);
    sequence.spec = KvPressSpec(golden);
    sequence.chunk = 256;
    ForwardDriver driver(fixture.model(), fixture.cache());
    driver.Open(sequence);
    driver.Prefill(sequence);
    driver.Close(sequence);
    for (size_t layer = 0; layer < sequence.kept[0].size(); ++layer) {
      for (size_t head = 0; head < sequence.kept[0][layer].size(); ++head) {
        const std::vector<int32_t> wanted = golden["kept"][layer][head];
        const std::vector<int32_t>& got = sequence.kept[0][layer][head];
        if (keeper.scores.empty()) {
          EXPECT_EQ(got, wanted) << "layer " << layer << " kv head " << head;
        } else {
          EXPECT_TRUE(SameButForTies(got, wanted, HeadScores(keeper.scores[layer], head)))
              << "layer " << layer << " kv head " << head;
        }
      }
    }
  }

  NeedlePrompts prompts_;
};

TEST_P(KvPressGoldenTest, KeepsTheSameSets) {
  const auto path = SharedDataPath("goldens/kvpress/cases.jsonl");
  const auto model_path = SharedDataPath("models/" + GetParam());
  if (!path.has_value() || !model_path.has_value()) {
    GTEST_SKIP() << "goldens/kvpress is absent: set HEADROOM_SHARED_DATA";
  }
  auto loaded = models::LoadModel(*model_path);
  ASSERT_TRUE(loaded.ok()) << StatusMessage(loaded.status());
  auto backend = std::make_unique<ScoreKeeper>(MakeBackend("cpu"));
  ScoreKeeper& keeper = *backend;
  KvFixtureOptions options;
  options.num_pages = 2000;
  options.max_rows = 256;
  KvFixture fixture(std::move(loaded).value(), options, std::move(backend));
  std::ifstream lines(*path);
  int checked = 0;
  for (std::string line; std::getline(lines, line);) {
    const json golden = json::parse(line);
    if (golden["model"] == GetParam() &&
        (golden["policy"] == "snapkv" || golden["policy"] == "streaming")) {
      SCOPED_TRACE(line.substr(0, 150));
      Check(golden, fixture, keeper);
      ++checked;
    }
  }
  EXPECT_EQ(checked, GetParam() == "needle-1hop" ? 36 : 24);
}

INSTANTIATE_TEST_SUITE_P(Models, KvPressGoldenTest,
                         ::testing::Values("needle-1hop", "needle-2hop"));

}  // namespace
}  // namespace headroom::testing
