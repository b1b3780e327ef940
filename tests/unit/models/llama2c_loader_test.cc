#include "tests/support/llama2c_loader.h"

#include <gtest/gtest.h>

#include "tests/support/test_data.h"

namespace headroom::testing {
namespace {

TEST(Llama2cLoaderTest, ReadsTheWholeCheckpoint) {
  const auto path = SharedDataPath("models/stories260K/stories260K.bin");
  if (!path.has_value()) {
    GTEST_SKIP() << "shared test data is absent: stories260K.bin";
  }
  const StatusOr<Llama2cModel> model = LoadLlama2cModel(*path);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->config.hidden_size, 64);
  EXPECT_EQ(model->config.intermediate_size, 172);
  EXPECT_EQ(model->config.num_hidden_layers, 5);
  EXPECT_EQ(model->config.num_attention_heads, 8);
  EXPECT_EQ(model->config.num_key_value_heads, 4);
  EXPECT_EQ(model->config.head_dim, 8);
  EXPECT_EQ(model->config.vocab_size, 512);
  EXPECT_EQ(model->config.max_position_embeddings, 512);
  EXPECT_TRUE(model->config.tie_word_embeddings);
  ASSERT_EQ(model->weights.layers.size(), 5u);
  EXPECT_EQ(model->weights.layers[4].down_proj.rows, 64);
  EXPECT_EQ(model->weights.layers[4].down_proj.cols, 172);
  EXPECT_EQ(model->weights.lm_head.data, model->weights.embed_tokens.data);
  // A norm's weights are all near 1: a tensor out of place would not be.
  const auto* norm = static_cast<const float*>(model->weights.final_norm.data);
  for (int i = 0; i < 64; ++i) {
    EXPECT_GT(norm[i], 0.1f) << i;
  }
}

TEST(Llama2cLoaderTest, DecodesPiecesAndBytes) {
  const auto path = SharedDataPath("models/stories260K/tok512.bin");
  if (!path.has_value()) {
    GTEST_SKIP() << "shared test data is absent: tok512.bin";
  }
  const StatusOr<Llama2cVocabulary> vocabulary = Llama2cVocabulary::Load(*path, 512);
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.status();
  EXPECT_EQ(vocabulary->pieces()[259], " t");
  EXPECT_EQ(vocabulary->Decode(5, 259), " t");
  EXPECT_EQ(vocabulary->Decode(1, 259), "t");  // after BOS
  EXPECT_EQ(vocabulary->Decode(5, 3 + 10), "\n");
  EXPECT_EQ(vocabulary->DecodeAll({1, 265, 264}), "thend");
  EXPECT_FALSE(Llama2cVocabulary::Load(*path, 511).ok());
}

}  // namespace
}  // namespace headroom::testing
