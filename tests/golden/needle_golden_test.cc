// The needle models answer, full cache and greedy, as many prompts as an independent fp32 forward
// does (../shared/data/README.md); the fp16 copies in the tree within one prompt of that.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/cpu/cpu_backend.h"
#include "models/loaded_model.h"
#include "models/transformer.h"
#include "tests/support/full_kv_store.h"
#include "tests/support/test_data.h"

namespace headroom::testing {
namespace {

struct NeedleCase {
  const char* model;
  const char* prompts;
  int answers;  // of 64
};

// Prompts whose whole answer is right.
int CountAnswers(const models::LoadedModel& model, const std::string& prompts) {
  auto backend = kernels::CreateCpuBackend({});
  EXPECT_TRUE(backend.ok()) << StatusMessage(backend.status());
  auto transformer = models::Transformer::Create(model.config, model.weights, **backend, {});
  EXPECT_TRUE(transformer.ok()) << StatusMessage(transformer.status());
  std::ifstream lines(prompts);
  int num_right = 0;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json json = nlohmann::json::parse(line);
    std::vector<int32_t> prompt = json["context"];
    for (int32_t id : json["question"].get<std::vector<int32_t>>()) {
      prompt.push_back(id);
    }
    FullKvStore kv(model.config, kernels::KvDType::kF32, static_cast<int32_t>(prompt.size()) + 16,
                   **backend);
    GreedyRunner runner(**transformer, kv, /*chunk=*/512);
    std::vector<float> logits = runner.Feed(prompt);
    bool right = true;
    for (int32_t wanted : json["answer"].get<std::vector<int32_t>>()) {
      const int32_t token = ArgMax(logits.data(), model.config.vocab_size);
      right = right && token == wanted;
      logits = runner.Feed({token});
    }
    num_right += right ? 1 : 0;
  }
  return num_right;
}

class NeedleGoldenTest : public ::testing::TestWithParam<NeedleCase> {};

TEST_P(NeedleGoldenTest, FullCacheAnswersAsManyPromptsAsTheIndependentForward) {
  const NeedleCase& c = GetParam();
  const auto directory = SharedDataPath(std::string("models/") + c.model);
  const auto prompts = SharedDataPath(std::string("needle/") + c.prompts + ".jsonl");
  if (!directory.has_value() || !prompts.has_value()) {
    GTEST_SKIP() << "needs the shared needle models";
  }
  for (const bool is_copy : {false, true}) {
    auto model = models::LoadModel(is_copy ? std::string("builtin:") + c.model : *directory);
    ASSERT_TRUE(model.ok()) << StatusMessage(model.status());
    const int got = CountAnswers(*model, *prompts);
    std::printf("%s%s on %s: %d of 64\n", c.model, is_copy ? " (fp16)" : "", c.prompts, got);
    EXPECT_GE(got, c.answers - (is_copy ? 1 : 0));
  }
}

INSTANTIATE_TEST_SUITE_P(All, NeedleGoldenTest,
                         ::testing::Values(NeedleCase{"needle-1hop", "1hop-256", 64},
                                           NeedleCase{"needle-1hop", "1hop-512", 64},
                                           NeedleCase{"needle-1hop", "1hop-1024", 58},
                                           NeedleCase{"needle-2hop", "2hop-256", 63},
                                           NeedleCase{"needle-2hop", "2hop-512", 60},
                                           NeedleCase{"needle-2hop", "1hop-512", 62}));

}  // namespace
}  // namespace headroom::testing
