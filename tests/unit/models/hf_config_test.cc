#include "models/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headroom::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A small configuration with more fields at its end.
std::string Config(const std::string& more) {
  return R"({"architectures":["LlamaForCausalLM"],"vocab_size":512,"hidden_size":128,)"
         R"("intermediate_size":352,"num_hidden_layers":6,"num_attention_heads":4)" +
         more + "}";
}

std::string ErrorOf(const std::string& text) {
  const StatusOr<HfConfig> config = ParseHfConfig(text, "config.json");
  return config.ok() ? "no error" : StatusMessage(config.status());
}

TEST(HfConfigTest, ReadsEveryField) {
  const StatusOr<HfConfig> parsed = ParseHfConfig(
      Config(R"(,"num_key_value_heads":2,"head_dim":48,"rms_norm_eps":1e-05,"rope_theta":20000.0,)"
             R"("max_position_embeddings":1024,"tie_word_embeddings":true,"rope_scaling":null,)"
             R"("eos_token_id":7,"attention_bias":false,"unknown":{"a":[1]})"),
      "config.json");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const ModelConfig& config = parsed->config;
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.vocab_size, 512);
  EXPECT_EQ(config.num_key_value_heads, 2);
  EXPECT_EQ(config.head_dim, 48);
  EXPECT_EQ(config.rms_norm_eps, 1e-5f);
  EXPECT_EQ(config.rope_theta, 20000.0);
  EXPECT_EQ(config.max_position_embeddings, 1024);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.rope_pairing, RopePairing::kHalves);
  EXPECT_EQ(config.rope_scaling, RopeScaling::kNone);
  EXPECT_THAT(parsed->eos_token_ids, ElementsAre(7));
}

TEST(HfConfigTest, UsesTheDefaultsOfTransformers) {
  const StatusOr<HfConfig> parsed = ParseHfConfig(Config(""), "config.json");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->config.num_key_value_heads, 4);
  EXPECT_EQ(parsed->config.head_dim, 32);
  EXPECT_EQ(parsed->config.rms_norm_eps, 1e-6f);
  EXPECT_EQ(parsed->config.rope_theta, 10000.0);
  EXPECT_EQ(parsed->config.max_position_embeddings, 2048);
  EXPECT_FALSE(parsed->config.tie_word_embeddings);
}

TEST(HfConfigTest, ReadsEosAsNumberListOrNull) {
  EXPECT_THAT(ParseHfConfig(Config(R"(,"eos_token_id":[3,1])"), "c")->eos_token_ids,
              ElementsAre(3, 1));
  EXPECT_THAT(ParseHfConfig(Config(R"(,"eos_token_id":null)"), "c")->eos_token_ids, IsEmpty());
  for (const char* bad : {"-1", "\"2\"", "[1,-2]", "1.5", "4294967296"}) {
    EXPECT_THAT(ErrorOf(Config(std::string(",\"eos_token_id\":") + bad)),
                HasSubstr("config.json: \"eos_token_id\""))
        << bad;
  }
}

TEST(HfConfigTest, ReadsRopeScalingOfOldAndNewFiles) {
  const std::string llama3 = R"("factor":32.0,"low_freq_factor":1.0,"high_freq_factor":4.0,)"
                             R"("original_max_position_embeddings":8192)";
  for (const std::string& text :
       {R"(,"rope_theta":500000.0,"rope_scaling":{"rope_type":"llama3",)" + llama3 + "}",
        R"(,"rope_parameters":{"rope_type":"llama3","rope_theta":500000.0,)" + llama3 + "}"}) {
    const StatusOr<HfConfig> parsed = ParseHfConfig(Config(text), "c");
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->config.rope_scaling, RopeScaling::kLlama3);
    EXPECT_EQ(parsed->config.rope_theta, 500000.0);
    EXPECT_EQ(parsed->config.rope_factor, 32.0);
    EXPECT_EQ(parsed->config.rope_original_max_position, 8192);
  }
  const auto linear = ParseHfConfig(Config(R"(,"rope_scaling":{"type":"linear","factor":2})"), "c");
  ASSERT_TRUE(linear.ok());
  EXPECT_EQ(linear->config.rope_scaling, RopeScaling::kLinear);
  EXPECT_EQ(linear->config.rope_factor, 2.0);
}

TEST(HfConfigTest, RefusesWhatItCannotRunNamingTheField) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(,"attention_bias":true)", "\"attention_bias\" (true)"},
      {R"(,"mlp_bias":true)", "\"mlp_bias\" (true)"},
      {R"(,"mlp_bias":"no")", "\"mlp_bias\""},
      {R"(,"hidden_act":"gelu")", "\"hidden_act\""},
      {R"(,"sliding_window":4096)", "\"sliding_window\" (4096)"},
      {R"(,"partial_rotary_factor":0.5)", "\"partial_rotary_factor\" (0.5)"},
      {R"(,"quantization_config":{})", "\"quantization_config\""},
      {R"(,"rope_scaling":{"type":"yarn","factor":4})", "rope scaling \"yarn\""},
      {R"(,"rope_scaling":{"type":"linear"})", "\"factor\""},
      {R"(,"rope_scaling":{"rope_type":"llama3","factor":8})", "original_max_position_embeddings"},
      {R"(,"rope_scaling":"linear")", "\"rope_scaling\""},
      {R"(,"head_dim":"32")", "\"head_dim\""},
      {R"(,"head_dim":4294967328)", "\"head_dim\" (4294967328)"},
      {R"(,"vocab_size":1)", "appears twice"},
  };
  for (const auto& [more, error] : cases) {
    EXPECT_THAT(ErrorOf(Config(more)), HasSubstr(error)) << more;
  }
  EXPECT_THAT(ErrorOf(R"({"architectures":["LlamaForCausalLM"]})"),
              HasSubstr("\"vocab_size\": missing"));
  EXPECT_THAT(ErrorOf("{}"), HasSubstr("\"architectures\""));
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("not an object"));
}

TEST(HfGenerationConfigTest, ReadsDefaultsAndEos) {
  const auto parsed = ParseHfGenerationConfig(
      R"({"temperature":0.6,"top_p":0.9,"top_k":40,"min_p":0.05,"repetition_penalty":1.1,)"
      R"("eos_token_id":[128001,128009],"do_sample":true})",
      "generation_config.json");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->defaults.temperature, 0.6f);
  EXPECT_EQ(parsed->defaults.top_p, 0.9f);
  EXPECT_EQ(parsed->defaults.top_k, 40);
  EXPECT_EQ(parsed->defaults.min_p, 0.05f);
  EXPECT_EQ(parsed->defaults.repetition_penalty, 1.1f);
  EXPECT_THAT(parsed->eos_token_ids, ElementsAre(128001, 128009));
}

TEST(HfGenerationConfigTest, LeavesUnnamedDefaultsUnset) {
  const auto parsed = ParseHfGenerationConfig(R"({"top_p":null})", "g");
  ASSERT_TRUE(parsed.ok());
  EXPECT_FALSE(parsed->defaults.temperature.has_value());
  EXPECT_FALSE(parsed->defaults.top_p.has_value());
}

TEST(HfGenerationConfigTest, RefusesValuesOutOfRange) {
  for (const char* text : {R"({"temperature":-1})", R"({"top_p":1.5})", R"({"top_k":-3})",
                           R"({"min_p":"x"})", R"({"repetition_penalty":0})"}) {
    EXPECT_FALSE(ParseHfGenerationConfig(text, "g").ok()) << text;
  }
}

}  // namespace
}  // namespace headroom::models
