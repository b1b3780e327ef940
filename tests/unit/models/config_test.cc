#include "models/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace headroom::models {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

ModelConfig SmallConfig() {
  ModelConfig config;
  config.vocab_size = 512;
  config.hidden_size = 256;
  config.intermediate_size = 352;
  config.num_hidden_layers = 6;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 64;
  config.max_position_embeddings = 1024;
  return config;
}

TEST(ConfigTest, AcceptsAnOrdinaryModel) { EXPECT_TRUE(ValidateConfig(SmallConfig()).ok()); }

TEST(ConfigTest, ListsEveryFaultAtOnce) {
  ModelConfig config = SmallConfig();
  config.vocab_size = 0;
  config.num_key_value_heads = 3;
  config.head_dim = 33;
  config.rms_norm_eps = 0.0f;
  config.rope_theta = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(StatusMessage(ValidateConfig(config)),
              AllOf(HasSubstr("vocab_size is 0, wanted 1.."),
                    HasSubstr("num_attention_heads 4 is not a multiple of num_key_value_heads 3"),
                    HasSubstr("head_dim is 33, wanted an even number"),
                    HasSubstr("rms_norm_eps is 0"), HasSubstr("rope_theta is nan")));
}

TEST(ConfigTest, RefusesEachFieldOutOfRange) {
  const std::vector<int32_t ModelConfig::*> fields = {&ModelConfig::vocab_size,
                                                      &ModelConfig::hidden_size,
                                                      &ModelConfig::intermediate_size,
                                                      &ModelConfig::num_hidden_layers,
                                                      &ModelConfig::num_attention_heads,
                                                      &ModelConfig::num_key_value_heads,
                                                      &ModelConfig::head_dim,
                                                      &ModelConfig::max_position_embeddings};
  for (size_t i = 0; i < fields.size(); ++i) {
    for (const int32_t value : {0, -1, INT32_MIN, INT32_MAX}) {
      ModelConfig config = SmallConfig();
      config.*fields[i] = value;
      EXPECT_FALSE(ValidateConfig(config).ok()) << "field " << i << " = " << value;
    }
  }
}

TEST(ConfigTest, RefusesRopeFactorsOfAnotherLengthOrSign) {
  ModelConfig config = SmallConfig();
  config.rope_freq_factors.assign(31, 1.0f);
  EXPECT_THAT(StatusMessage(ValidateConfig(config)), HasSubstr("31 entries, wanted head_dim / 2"));
  config.rope_freq_factors.assign(32, 1.0f);
  EXPECT_TRUE(ValidateConfig(config).ok());
  config.rope_freq_factors[7] = 0.0f;
  EXPECT_THAT(StatusMessage(ValidateConfig(config)), HasSubstr("rope_freq_factors[7] is 0"));
}

TEST(ConfigTest, RefusesLlama3ScalingWhoseBandsAreReversed) {
  ModelConfig config = SmallConfig();
  config.rope_scaling = RopeScaling::kLlama3;
  config.rope_factor = 8.0;
  config.rope_original_max_position = 8192;
  EXPECT_TRUE(ValidateConfig(config).ok());
  config.rope_high_freq_factor = config.rope_low_freq_factor;
  EXPECT_FALSE(ValidateConfig(config).ok());
}

// The right answers below are transformers 5.24's, computed in f32: a few units in the last place
// of f32 is what they can differ from our doubles.
constexpr double kF32Tolerance = 1e-6;

TEST(RopeTest, PlainFrequenciesArePowersOfTheta) {
  ModelConfig config = SmallConfig();
  config.rope_theta = 10000.0;
  const std::vector<double> frequencies = RopeInverseFrequencies(config);
  ASSERT_EQ(frequencies.size(), 32u);
  EXPECT_EQ(frequencies[0], 1.0);
  EXPECT_NEAR(frequencies[16], 0.01, 1e-16);  // 10000 to the power of -1/2
}

TEST(RopeTest, LinearScalingDividesEveryFrequency) {
  ModelConfig config = SmallConfig();
  config.rope_scaling = RopeScaling::kLinear;
  config.rope_factor = 4.0;
  const double expected[] = {0.25,
                             0.18747355043888092,
                             0.14058533310890198,
                             0.10542412847280502,
                             0.07905694097280502,
                             0.05928434059023857};
  const std::vector<double> frequencies = RopeInverseFrequencies(config);
  for (size_t i = 0; i < std::size(expected); ++i) {
    EXPECT_NEAR(frequencies[i] / expected[i], 1.0, kF32Tolerance) << i;
  }
}

TEST(RopeTest, Llama3ScalingKeepsBlendsAndDivides) {
  ModelConfig config = SmallConfig();
  config.rope_theta = 500000.0;
  config.rope_scaling = RopeScaling::kLlama3;
  config.rope_factor = 32.0;
  config.rope_low_freq_factor = 1.0;
  config.rope_high_freq_factor = 4.0;
  config.rope_original_max_position = 8192;
  // Kept up to 14, blended 15..17, divided from 18 on.
  const std::pair<size_t, double> expected[] = {
      {0, 1.0},
      {1, 0.663601279258728},
      {14, 0.0032114461064338684},
      {15, 0.0012905480107292533},
      {16, 0.000429556705057621},
      {17, 9.708286233944818e-05},
      {18, 1.9461638657958247e-05},
      {31, 9.418306490260875e-08},
  };
  const std::vector<double> frequencies = RopeInverseFrequencies(config);
  for (const auto& [index, value] : expected) {
    // Inside the blend f32 cancels: a few more units.
    EXPECT_NEAR(frequencies[index] / value, 1.0, 4 * kF32Tolerance) << index;
  }
}

TEST(RopeTest, FactorsOfTheFileDivideTheirFrequency) {
  ModelConfig config = SmallConfig();
  const std::vector<double> plain = RopeInverseFrequencies(config);
  config.rope_freq_factors.assign(32, 1.0f);
  config.rope_freq_factors[3] = 8.0f;
  const std::vector<double> scaled = RopeInverseFrequencies(config);
  EXPECT_EQ(scaled[3], plain[3] / 8.0);
  EXPECT_EQ(scaled[4], plain[4]);
}

}  // namespace
}  // namespace headroom::models
