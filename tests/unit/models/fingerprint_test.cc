#include "models/fingerprint.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <vector>

#include "base/sha256.h"
#include "models/loaded_model.h"

namespace headroom::models {
namespace {

TEST(FingerprintTest, TheArchitectureHashChangesWithWhatChangesTheComputation) {
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.num_hidden_layers = 4;
  config.num_attention_heads = 8;
  config.num_key_value_heads = 2;
  const std::string hash = ArchHash(config);
  EXPECT_TRUE(IsSha256Text(hash));
  const std::function<void(ModelConfig*)> changes[] = {
      [](ModelConfig* c) { c->num_hidden_layers = 5; },
      [](ModelConfig* c) { c->num_key_value_heads = 4; },
      [](ModelConfig* c) { c->head_dim = 32; },
      [](ModelConfig* c) { c->rope_theta = 5000.0; },
      [](ModelConfig* c) { c->rms_norm_eps = 1e-6f; },
      [](ModelConfig* c) { c->rope_scaling = RopeScaling::kLinear; },
      [](ModelConfig* c) { c->rope_freq_factors = {1.0f}; },
      [](ModelConfig* c) { c->tie_word_embeddings = true; },
      [](ModelConfig* c) { c->intermediate_size = 7; },
      [](ModelConfig* c) { c->architecture = "Other"; },
  };
  for (const auto& change : changes) {
    ModelConfig other = config;
    change(&other);
    EXPECT_NE(ArchHash(other), hash);
  }
  ModelConfig same = config;
  same.name = "renamed";
  same.max_position_embeddings = 99;
  same.rope_pairing = RopePairing::kInterleaved;
  EXPECT_EQ(ArchHash(same), hash);
}

TEST(FingerprintTest, TheWeightsHashChangesWithAnyByteTypeOrPlaceOfAttentionWeights) {
  const StatusOr<LoadedModel> model = LoadModel("builtin:needle-1hop");
  ASSERT_TRUE(model.ok()) << model.status();
  ModelWeights weights = model->weights;
  const std::string hash = AttentionWeightsHash(weights, 1);
  EXPECT_EQ(AttentionWeightsHash(weights, 3), hash) << "threads";

  TensorView& value = weights.layers[1].v_proj;
  const TensorView original = value;
  const auto* bytes = static_cast<const uint8_t*>(original.data);
  std::vector<uint8_t> changed(bytes, bytes + original.num_bytes());
  changed.back() ^= 1;
  value.data = changed.data();
  EXPECT_NE(AttentionWeightsHash(weights, 1), hash) << "one bit of the last byte";
  value = original;
  std::swap(value.rows, value.cols);
  EXPECT_NE(AttentionWeightsHash(weights, 1), hash) << "shape";
  value = original;
  std::swap(weights.layers[0].k_proj, weights.layers[0].v_proj);
  EXPECT_NE(AttentionWeightsHash(weights, 1), hash) << "k and v exchanged";
  std::swap(weights.layers[0].k_proj, weights.layers[0].v_proj);
  std::swap(weights.layers[0], weights.layers[1]);
  EXPECT_NE(AttentionWeightsHash(weights, 1), hash) << "layers exchanged";
  std::swap(weights.layers[0], weights.layers[1]);
  weights.layers[0].down_proj = weights.layers[1].down_proj;
  EXPECT_EQ(AttentionWeightsHash(weights, 1), hash) << "no attention weight";
}

TEST(FingerprintTest, NamesTheTypesOfTheAttentionWeights) {
  const StatusOr<LoadedModel> model = LoadModel("builtin:tiny");
  ASSERT_TRUE(model.ok()) << model.status();
  ModelWeights weights = model->weights;
  const std::string name = GetDTypeInfo(weights.layers[0].q_proj.dtype).name;
  EXPECT_EQ(AttentionWeightsDType(weights), name);
  weights.layers[0].q_proj.dtype = DType::kQ8_0;
  EXPECT_EQ(AttentionWeightsDType(weights), name + "+q8_0");
}

TEST(FingerprintTest, TheVocabularyHashKnowsPiecesAndMeanings) {
  const auto tokenizer = CreateByteTokenizer({"<a>", "<b>"}, 0, 1);
  const std::string hash = VocabHash(*tokenizer);
  EXPECT_EQ(VocabHash(*CreateByteTokenizer({"<a>", "<b>"}, 0, 1)), hash);
  EXPECT_NE(VocabHash(*CreateByteTokenizer({"<a>", "<c>"}, 0, 1)), hash);
  EXPECT_NE(VocabHash(*CreateByteTokenizer({"<a>", "<b>"}, 1, 0)), hash);
  EXPECT_NE(VocabHash(*CreateByteTokenizer({"<a>", "<b>", "<c>"}, 0, 1)), hash);
}

TEST(FingerprintTest, ACorpusIsASetOfPrompts) {
  const std::array<int32_t, 2> first = {1, 2};
  const std::array<int32_t, 2> second = {2, 1};
  const std::array<int32_t, 1> third = {258};  // the same bytes as a shorter number's
  const std::string a = PromptHash(first);
  const std::string b = PromptHash(second);
  const std::string c = PromptHash(third);
  EXPECT_NE(a, b);
  EXPECT_EQ(CorpusHash({a, b, c}), CorpusHash({c, a, b}));
  EXPECT_NE(CorpusHash({a, b}), CorpusHash({a, c}));
  EXPECT_NE(CorpusHash({a, a}), CorpusHash({a}));
}

}  // namespace
}  // namespace headroom::models
