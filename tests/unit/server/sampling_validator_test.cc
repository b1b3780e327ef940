#include "server/sampling_validator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

namespace headroom::server {
namespace {

constexpr int64_t kVocabSize = 1000;

struct Outcome {
  std::optional<ApiError> error;
  engine::SamplingParams sampling;
  engine::StopCriteria stop;
};

Outcome Validate(const GenerationRequest& request,
                 const models::GenerationDefaults& defaults = {}) {
  Outcome outcome;
  SamplingLimits limits;
  limits.vocab_size = kVocabSize;
  outcome.error = ValidateSampling(request, defaults, limits, &outcome.sampling, &outcome.stop);
  return outcome;
}

struct FloatCase {
  const char* name;
  std::optional<double> GenerationRequest::*field;
  std::vector<double> good;
  std::vector<double> bad;
};

class FloatRangeTest : public testing::TestWithParam<FloatCase> {};

TEST_P(FloatRangeTest, TakesItsRangeAndNamesWhatIsOutside) {
  for (double value : GetParam().good) {
    GenerationRequest request;
    request.*(GetParam().field) = value;
    const Outcome outcome = Validate(request);
    EXPECT_FALSE(outcome.error.has_value()) << GetParam().name << " " << value;
  }
  std::vector<double> bad = GetParam().bad;
  bad.insert(bad.end(), {std::nan(""), std::numeric_limits<double>::infinity(),
                         -std::numeric_limits<double>::infinity(), 1e30});
  for (double value : bad) {
    GenerationRequest request;
    request.*(GetParam().field) = value;
    const Outcome outcome = Validate(request);
    ASSERT_TRUE(outcome.error.has_value()) << GetParam().name << " " << value;
    EXPECT_EQ(outcome.error->http_status, 400);
    EXPECT_EQ(outcome.error->code, "invalid_value");
    EXPECT_EQ(outcome.error->param, GetParam().name);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, FloatRangeTest,
    testing::Values(
        FloatCase{"temperature", &GenerationRequest::temperature, {0, 1, 2}, {-0.01, 2.01}},
        FloatCase{"top_p", &GenerationRequest::top_p, {0.001, 1}, {0, -1, 1.01, 2}},
        FloatCase{"min_p", &GenerationRequest::min_p, {0, 1}, {-0.1, 1.1}},
        FloatCase{"presence_penalty", &GenerationRequest::presence_penalty, {-2, 2}, {-2.1, 2.1}},
        FloatCase{"frequency_penalty", &GenerationRequest::frequency_penalty, {-2, 2}, {-2.1, 3}},
        FloatCase{
            "repetition_penalty", &GenerationRequest::repetition_penalty, {0.1, 2}, {0, -1, 2.1}}));

struct IntegerCase {
  const char* name;
  std::optional<int64_t> GenerationRequest::*field;
  std::vector<int64_t> good;
  std::vector<int64_t> bad;
};

class IntegerRangeTest : public testing::TestWithParam<IntegerCase> {};

TEST_P(IntegerRangeTest, TakesItsRangeAndNamesWhatIsOutside) {
  for (int64_t value : GetParam().good) {
    GenerationRequest request;
    request.*(GetParam().field) = value;
    EXPECT_FALSE(Validate(request).error.has_value()) << GetParam().name << " " << value;
  }
  for (int64_t value : GetParam().bad) {
    GenerationRequest request;
    request.*(GetParam().field) = value;
    const Outcome outcome = Validate(request);
    ASSERT_TRUE(outcome.error.has_value()) << GetParam().name << " " << value;
    EXPECT_EQ(outcome.error->code, "invalid_value");
    EXPECT_EQ(outcome.error->param, GetParam().name);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, IntegerRangeTest,
    testing::Values(
        IntegerCase{"n", &GenerationRequest::n, {1, 8}, {0, -1, 9, 1'000'000'000, INT64_MAX}},
        IntegerCase{"top_k", &GenerationRequest::top_k, {-1, 0, 1, INT64_MAX}, {-2, INT64_MIN}},
        IntegerCase{"max_tokens", &GenerationRequest::max_tokens, {1, INT64_MAX}, {0, -1}},
        IntegerCase{"min_tokens", &GenerationRequest::min_tokens, {0, 5, INT64_MAX}, {-1}},
        IntegerCase{"logprobs", &GenerationRequest::num_logprobs, {0, 20}, {-1, 21}},
        IntegerCase{"seed", &GenerationRequest::seed, {INT64_MIN, -1, 0, INT64_MAX}, {}}));

TEST(SamplingValidatorTest, ChatNamesTopLogprobs) {
  GenerationRequest request;
  request.prompts.emplace_back(ChatPrompt{});
  request.num_logprobs = 21;
  EXPECT_EQ(Validate(request).error->param, "top_logprobs");
}

TEST(SamplingValidatorTest, MinTokensMayNotExceedMaxTokens) {
  GenerationRequest request;
  request.max_tokens = 4;
  request.min_tokens = 5;
  EXPECT_EQ(Validate(request).error->param, "min_tokens");
  request.min_tokens = 4;
  const Outcome outcome = Validate(request);
  EXPECT_FALSE(outcome.error.has_value());
  EXPECT_EQ(outcome.stop.min_new_tokens, 4);
}

TEST(SamplingValidatorTest, LogitBiasKeysAreTokensAndValuesAreBounded) {
  for (int64_t token : {int64_t{-1}, kVocabSize, INT64_MAX}) {
    GenerationRequest request;
    request.logit_bias = {{token, 1.0}};
    ASSERT_TRUE(Validate(request).error.has_value()) << token;
    EXPECT_EQ(Validate(request).error->param, "logit_bias");
  }
  for (double bias : {100.1, -100.1, std::nan("")}) {
    GenerationRequest request;
    request.logit_bias = {{1, bias}};
    ASSERT_TRUE(Validate(request).error.has_value()) << bias;
  }
  GenerationRequest many;
  for (int64_t i = 0; i < 1025; ++i) {
    many.logit_bias.emplace_back(i % kVocabSize, 0.0);
  }
  EXPECT_TRUE(Validate(many).error.has_value());
  GenerationRequest good;
  good.logit_bias = {{0, -100}, {kVocabSize - 1, 100}};
  const Outcome outcome = Validate(good);
  ASSERT_FALSE(outcome.error.has_value());
  EXPECT_EQ(outcome.sampling.logit_bias.size(), 2u);
}

TEST(SamplingValidatorTest, StopStringsAreFewAndShort) {
  GenerationRequest request;
  request.stop.assign(16, std::string(256, 'x'));
  EXPECT_FALSE(Validate(request).error.has_value());
  request.stop.assign(17, "x");
  EXPECT_EQ(Validate(request).error->param, "stop");
  request.stop = {""};
  EXPECT_EQ(Validate(request).error->param, "stop");
  request.stop = {std::string(257, 'x')};
  EXPECT_EQ(Validate(request).error->param, "stop");
}

TEST(SamplingValidatorTest, StopTokensAreTokens) {
  GenerationRequest request;
  request.stop_token_ids = {0, kVocabSize - 1};
  EXPECT_FALSE(Validate(request).error.has_value());
  request.stop_token_ids = {kVocabSize};
  EXPECT_EQ(Validate(request).error->param, "stop_token_ids");
  request.stop_token_ids = {-1};
  EXPECT_EQ(Validate(request).error->param, "stop_token_ids");
}

TEST(SamplingValidatorTest, TimeoutsAreFiniteAndPositive) {
  for (double timeout : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    GenerationRequest request;
    request.timeout_s = timeout;
    ASSERT_TRUE(Validate(request).error.has_value()) << timeout;
    EXPECT_EQ(Validate(request).error->param, "timeout");
  }
}

TEST(SamplingValidatorTest, TheRequestGoesBeforeTheModelsDefaults) {
  models::GenerationDefaults defaults;
  defaults.temperature = 0.2f;
  defaults.top_p = 0.9f;
  defaults.top_k = 50;
  const Outcome model = Validate({}, defaults);
  EXPECT_EQ(model.sampling.temperature, 0.2f);
  EXPECT_EQ(model.sampling.top_p, 0.9f);
  EXPECT_EQ(model.sampling.top_k, 50);
  GenerationRequest request;
  request.temperature = 0;
  request.top_k = -1;
  const Outcome asked = Validate(request, defaults);
  EXPECT_EQ(asked.sampling.temperature, 0.0f);
  EXPECT_EQ(asked.sampling.top_p, 0.9f);
  EXPECT_EQ(asked.sampling.top_k, 0);
  const Outcome plain = Validate({});
  EXPECT_EQ(plain.sampling.temperature, 1.0f);
  EXPECT_EQ(plain.sampling.top_p, 1.0f);
}

}  // namespace
}  // namespace headroom::server
