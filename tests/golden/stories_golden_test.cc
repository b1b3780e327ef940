// stories260K: 200 greedy steps must give the text that llama2.c's own test expects, on every
// backend and ISA, with an f32 KV cache.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/ref/ref_backend.h"
#include "models/transformer.h"
#include "tests/support/full_kv_store.h"
#include "tests/support/llama2c_loader.h"
#include "tests/support/test_data.h"

namespace headroom::testing {
namespace {

constexpr int32_t kBosId = 1;
constexpr int kSteps = 200;

std::string Greedy(const Llama2cModel& model, const Llama2cVocabulary& tokenizer,
                   kernels::Backend& backend) {
  auto transformer = models::Transformer::Create(model.config, model.weights, backend, {});
  EXPECT_TRUE(transformer.ok()) << StatusMessage(transformer.status());
  FullKvStore kv(model.config, kernels::KvDType::kF32, kSteps + 1, backend);
  GreedyRunner runner(**transformer, kv, /*chunk=*/64);
  std::string text;
  int32_t previous = kBosId;
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<float> logits = runner.Feed({previous});
    const int32_t token = ArgMax(logits.data(), model.config.vocab_size);
    if (token == kBosId) {
      break;
    }
    text += tokenizer.Decode(previous, token);
    previous = token;
  }
  return text;
}

class StoriesGoldenTest : public ::testing::TestWithParam<std::string> {};

TEST_P(StoriesGoldenTest, TwoHundredGreedyStepsGiveTheExpectedText) {
  const auto directory = SharedDataPath("models/stories260K");
  if (!directory.has_value()) {
    GTEST_SKIP() << "needs the shared stories260K model";
  }
  std::unique_ptr<kernels::Backend> backend;
  if (GetParam() == "ref") {
    backend = kernels::CreateRefBackend();
  } else {
    if (!kernels::CpuSupportsIsa(GetParam())) {
      GTEST_SKIP() << "hardware: no " << GetParam();
    }
    auto made = kernels::CreateCpuBackend({GetParam(), /*num_threads=*/1});
    ASSERT_TRUE(made.ok()) << StatusMessage(made.status());
    backend = std::move(made).value();
  }
  auto model = LoadLlama2cModel(*directory + "/stories260K.bin");
  ASSERT_TRUE(model.ok()) << StatusMessage(model.status());
  auto tokenizer = Llama2cVocabulary::Load(*directory + "/tok512.bin", model->config.vocab_size);
  ASSERT_TRUE(tokenizer.ok()) << StatusMessage(tokenizer.status());
  std::ifstream file(*directory + "/expected_greedy_200.txt", std::ios::binary);
  std::string expected{std::istreambuf_iterator<char>(file), {}};
  while (!expected.empty() && expected.back() == '\n') {
    expected.pop_back();
  }

  std::string got = Greedy(*model, *tokenizer, *backend);
  while (!got.empty() && got.back() == '\n') {
    got.pop_back();
  }
  EXPECT_EQ(got, expected);
}

INSTANTIATE_TEST_SUITE_P(Backends, StoriesGoldenTest,
                         ::testing::Values("ref", "scalar", "avx2", "avx512"));

}  // namespace
}  // namespace headroom::testing
