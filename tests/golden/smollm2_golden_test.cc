// SmolLM2-135M against Hugging Face transformers in fp32 on the dequantised weights: prompt ids,
// last-position logits and 32 greedy tokens (../shared/data/goldens/README.md).
//
// HEADROOM_GOLDEN_ALL=1 runs all twelve prompts; otherwise the nine short ones.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/ref/ref_backend.h"
#include "models/loaded_model.h"
#include "models/transformer.h"
#include "tests/support/full_kv_store.h"
#include "tests/support/test_data.h"

namespace headroom::testing {
namespace {

constexpr size_t kShortPromptTokens = 100;

struct GoldenPrompt {
  std::string name;
  std::string text;
  std::vector<int32_t> ids;
  std::vector<int32_t> greedy_ids;
  std::vector<double> top2_gaps;
  std::vector<float> last_logits;  // [vocab]
};

std::vector<GoldenPrompt> LoadPrompts(const std::string& directory, size_t vocab_size) {
  std::vector<GoldenPrompt> prompts;
  std::ifstream lines(directory + "/prompts.jsonl");
  std::ifstream logits(directory + "/last_logits.npy", std::ios::binary);
  logits.seekg(8);
  uint16_t header_bytes = 0;
  logits.read(reinterpret_cast<char*>(&header_bytes), 2);
  logits.seekg(10 + header_bytes);
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json json = nlohmann::json::parse(line);
    GoldenPrompt prompt{json["name"],       json["text"],      json["ids"],
                        json["greedy_ids"], json["top2_gaps"], std::vector<float>(vocab_size)};
    logits.read(reinterpret_cast<char*>(prompt.last_logits.data()),
                static_cast<std::streamsize>(vocab_size * sizeof(float)));
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

class SmolLm2GoldenTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto directory = SharedDataPath("goldens/smollm2");
    const auto path = SmolLm2Path();
    if (!directory.has_value() || !path.has_value()) {
      GTEST_SKIP() << "needs the SmolLM2 GGUF and the shared goldens";
    }
    auto loaded = models::LoadModel(*path);
    ASSERT_TRUE(loaded.ok()) << StatusMessage(loaded.status());
    loaded_ = std::move(loaded).value();
    prompts_ = LoadPrompts(*directory, static_cast<size_t>(loaded_.config.vocab_size));
    ASSERT_EQ(prompts_.size(), 12u);
    if (std::getenv("HEADROOM_GOLDEN_ALL") == nullptr) {
      std::erase_if(prompts_,
                    [](const GoldenPrompt& p) { return p.ids.size() > kShortPromptTokens; });
    }
  }

  std::unique_ptr<models::Transformer> MakeModel(kernels::Backend& backend) {
    models::TransformerOptions options;
    options.max_rows = 512;
    auto model = models::Transformer::Create(loaded_.config, loaded_.weights, backend, options);
    EXPECT_TRUE(model.ok()) << StatusMessage(model.status());
    return std::move(model).value();
  }

  // Greedy tokens equal the golden ones up to a first difference where the golden top-2 gap is
  // below `gap`.
  void ExpectGreedy(const GoldenPrompt& prompt, models::Model& model, kernels::Backend& backend,
                    double gap, double logit_tolerance) {
    FullKvStore kv(loaded_.config, kernels::KvDType::kF32,
                   static_cast<int32_t>(prompt.ids.size()) + 64, backend);
    GreedyRunner runner(model, kv, /*chunk=*/512);
    std::vector<float> logits = runner.Feed(prompt.ids);
    double worst = 0.0;
    for (size_t i = 0; i < logits.size(); ++i) {
      worst = std::max(worst, std::abs(static_cast<double>(logits[i]) - prompt.last_logits[i]));
    }
    RecordProperty(prompt.name + "_max_logit_error", std::to_string(worst));
    std::printf("%s: max logit error %.2e\n", prompt.name.c_str(), worst);
    EXPECT_LE(worst, logit_tolerance) << prompt.name;
    for (size_t step = 0; step < prompt.greedy_ids.size(); ++step) {
      const int32_t token = ArgMax(logits.data(), loaded_.config.vocab_size);
      if (token != prompt.greedy_ids[step]) {
        std::printf("%s: first difference at step %zu, golden gap %.3f\n", prompt.name.c_str(),
                    step, prompt.top2_gaps[step]);
        EXPECT_LT(prompt.top2_gaps[step], gap) << prompt.name << " step " << step;
        return;
      }
      logits = runner.Feed({token});
    }
  }

  models::LoadedModel loaded_;
  std::vector<GoldenPrompt> prompts_;
};

TEST_F(SmolLm2GoldenTest, PromptIdsEqualTransformers) {
  ASSERT_NE(loaded_.tokenizer, nullptr);
  for (const GoldenPrompt& prompt : prompts_) {
    EXPECT_EQ(loaded_.tokenizer->Encode(prompt.text, /*add_bos=*/false, /*parse_special=*/true),
              prompt.ids)
        << prompt.name;
  }
}

TEST_F(SmolLm2GoldenTest, ReferenceBackendFollowsTransformers) {
  const auto backend = kernels::CreateRefBackend(/*num_threads=*/2);
  const auto model = MakeModel(*backend);
  for (const GoldenPrompt& prompt : prompts_) {
    ExpectGreedy(prompt, *model, *backend, /*gap=*/2e-2, /*logit_tolerance=*/2e-3);
  }
}

// Activations of 16 bits are near f32; the golden gap bounds how far a first difference may be from
// a tie.
TEST_F(SmolLm2GoldenTest, CpuBackendDiffersOnlyNearTies) {
  auto backend = kernels::CreateCpuBackend({});
  ASSERT_TRUE(backend.ok()) << StatusMessage(backend.status());
  const auto model = MakeModel(**backend);
  for (const GoldenPrompt& prompt : prompts_) {
    ExpectGreedy(prompt, *model, **backend, /*gap=*/2e-2, /*logit_tolerance=*/5e-2);
  }
}

}  // namespace
}  // namespace headroom::testing
