// Kept sets of kvpress 0.5.5 on the needle models (data/goldens/kvpress).
#include "tests/golden/kvpress_golden.h"

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/loaded_model.h"
#include "tests/support/forward_driver.h"
#include "tests/support/kv_fixture.h"

namespace headroom::testing {
namespace {

constexpr int32_t kMaxRows = 1024;
constexpr int kNum1Hop = 108;
constexpr int kNum2Hop = 72;

class KvPressGoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  void Check(const json& golden, KvFixture& fixture, ScoreKeeper& keeper) {
    keeper.scores.clear();
    DrivenSequence sequence;
    sequence.prompt = prompts_.Get(golden["prompts"], golden["id"]);
    sequence.spec = KvPressSpec(golden);
    sequence.chunk = kMaxRows;  // column sums are watched in one call
    ForwardDriver driver(fixture.model(), fixture.cache());
    driver.Open(sequence);
    driver.Prefill(sequence);
    driver.Close(sequence);
    for (size_t layer = 0; layer < sequence.kept[0].size(); ++layer) {
      ExpectKeptSets(golden, layer, sequence.kept[0][layer], keeper.scores);
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
  options.max_rows = kMaxRows;
  KvFixture fixture(std::move(loaded).value(), options, std::move(backend));
  std::ifstream lines(*path);
  int checked = 0;
  for (std::string line; std::getline(lines, line);) {
    const json golden = json::parse(line);
    if (golden["model"] == GetParam()) {
      SCOPED_TRACE(line.substr(0, 150));
      Check(golden, fixture, keeper);
      ++checked;
    }
  }
  EXPECT_EQ(checked, GetParam() == "needle-1hop" ? kNum1Hop : kNum2Hop);
}

INSTANTIATE_TEST_SUITE_P(Models, KvPressGoldenTest,
                         ::testing::Values("needle-1hop", "needle-2hop"));

}  // namespace
}  // namespace headroom::testing
