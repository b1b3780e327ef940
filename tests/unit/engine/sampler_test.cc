#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "base/philox.h"

namespace headroom::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

SamplingParams Greedy() {
  SamplingParams params;
  params.temperature = 0.0f;
  return params;
}

int32_t SampleOne(const std::vector<float>& logits, const SamplingParams& params,
                  uint64_t index = 0, const TokenHistory& history = TokenHistory(),
                  std::span<const uint64_t> allowed = {}) {
  Sampler sampler(static_cast<int32_t>(logits.size()));
  return sampler.Sample(logits, params, history, index, allowed).token;
}

// The definition, sorted whole, in double: tokens that survive with their probabilities.
std::map<int32_t, double> Distribution(const std::vector<float>& logits,
                                       const SamplingParams& params, const TokenHistory& history,
                                       bool* near_a_cut) {
  std::vector<double> x(logits.begin(), logits.end());
  for (const TokenHistory::Entry& entry : history.entries()) {
    double& logit = x[static_cast<size_t>(entry.token)];
    const double repetition = params.repetition_penalty;
    logit = logit > 0 ? logit / repetition : logit * repetition;
    if (entry.generated > 0) {
      logit -= static_cast<double>(params.presence_penalty) +
               static_cast<double>(params.frequency_penalty) * entry.generated;
    }
  }
  for (const auto& [token, bias] : params.logit_bias) {
    x[static_cast<size_t>(token)] += static_cast<double>(bias);
  }
  std::vector<int32_t> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return x[static_cast<size_t>(a)] > x[static_cast<size_t>(b)];
  });
  const auto renormalise = [&](std::vector<int32_t>& kept) {
    std::vector<double> p;
    double sum = 0.0;
    for (const int32_t token : kept) {
      p.push_back(std::exp((x[static_cast<size_t>(token)] - x[static_cast<size_t>(order[0])]) /
                           static_cast<double>(params.temperature)));
      sum += p.back();
    }
    for (double& value : p) {
      value /= sum;
    }
    return p;
  };
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < order.size()) {
    order.resize(static_cast<size_t>(params.top_k));
  }
  std::vector<double> p = renormalise(order);
  std::vector<int32_t> kept;
  for (size_t i = 0; i < order.size(); ++i) {
    const double ratio = p[i] / p[0];
    *near_a_cut |= std::abs(ratio - static_cast<double>(params.min_p)) < 1e-9;
    if (ratio >= static_cast<double>(params.min_p)) {
      kept.push_back(order[i]);
    }
  }
  p = renormalise(kept);
  double sum = 0.0;
  size_t count = 0;
  while (count < kept.size() && (count == 0 || sum < static_cast<double>(params.top_p))) {
    sum += p[count++];
    *near_a_cut |= params.top_p < 1.0f && std::abs(sum - static_cast<double>(params.top_p)) < 1e-9;
  }
  kept.resize(count);
  p = renormalise(kept);
  std::map<int32_t, double> distribution;
  for (size_t i = 0; i < kept.size(); ++i) {
    distribution[kept[i]] = p[i];
  }
  return distribution;
}

TEST(SamplerTest, EqualsTheSortedDefinitionOnRandomInputs) {
  const Philox rng(3);
  uint64_t counter = 0;
  const auto draw = [&](uint32_t bound) { return rng.Block(counter++)[0] % bound; };
  int compared = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    const size_t vocab = 1 + draw(trial % 50 == 0 ? 3000 : 60);
    std::vector<float> logits(vocab);
    const uint32_t steps = 1 + draw(100);  // few steps: many ties
    for (float& logit : logits) {
      logit = (static_cast<float>(draw(steps)) - static_cast<float>(steps) / 2) / 8.0f;
    }
    TokenHistory history;
    for (uint32_t i = draw(6); i > 0; --i) {
      const auto token = static_cast<int32_t>(draw(static_cast<uint32_t>(vocab)));
      if (draw(2) == 0) {
        history.AddPrompt(std::span(&token, 1));
      } else {
        history.AddGenerated(token);
      }
    }
    // All exact in f32, so that only the order of sums differs from the definition.
    SamplingParams params;
    params.temperature = 0.25f * static_cast<float>(1 + draw(8));
    params.top_k = draw(2) == 0 ? 0 : static_cast<int32_t>(draw(static_cast<uint32_t>(vocab)) + 1);
    params.top_p = draw(2) == 0 ? 1.0f : (1.0f + static_cast<float>(draw(99))) / 100.0f;
    params.min_p = draw(2) == 0 ? 0.0f : static_cast<float>(draw(100)) / 100.0f;
    params.presence_penalty = 0.5f * (static_cast<float>(draw(9)) - 4.0f);
    params.frequency_penalty = 0.25f * (static_cast<float>(draw(17)) - 8.0f);
    params.repetition_penalty = draw(2) == 0 ? 1.0f : (draw(2) == 0 ? 2.0f : 0.5f);
    params.seed = draw(1000);
    params.choice = draw(4);
    if (draw(3) == 0) {
      params.logit_bias.emplace_back(static_cast<int32_t>(draw(static_cast<uint32_t>(vocab))),
                                     static_cast<float>(draw(9)) - 4.0f);
    }
    bool near_a_cut = false;
    const std::map<int32_t, double> expected = Distribution(logits, params, history, &near_a_cut);
    const uint64_t index = draw(5000);
    const double uniform = Philox(params.seed, params.choice).Uniform(index);
    double sum = 0.0;
    int32_t token = -1;
    for (const auto& [candidate, p] : expected) {
      sum += p;
      near_a_cut |= std::abs(sum - uniform) < 1e-9;
      if (token < 0 && sum > uniform) {
        token = candidate;
      }
    }
    if (near_a_cut) {
      continue;  // the order of a sum decides
    }
    ++compared;
    ASSERT_EQ(SampleOne(logits, params, index, history), token) << "trial " << trial;
  }
  EXPECT_GT(compared, 3000);
}

double ChiSquare(const std::map<int32_t, int>& counts, const std::map<int32_t, double>& expected,
                 int num_draws) {
  double sum = 0.0;
  for (const auto& [token, p] : expected) {
    const auto found = counts.find(token);
    const double count = found == counts.end() ? 0.0 : found->second;
    sum += (count - p * num_draws) * (count - p * num_draws) / (p * num_draws);
  }
  return sum;
}

TEST(SamplerTest, DrawsFollowTheDistribution) {
  constexpr int kDraws = 20'000;
  const std::vector<float> logits = {0.5f, -1.0f, 2.0f, 1.0f, 0.0f, -2.0f, 1.5f, 0.25f};
  for (const float temperature : {0.5f, 1.0f, 2.0f}) {
    for (const float top_p : {1.0f, 0.8f}) {
      SamplingParams params;
      params.temperature = temperature;
      params.top_p = top_p;
      bool near_a_cut = false;
      const auto expected = Distribution(logits, params, TokenHistory(), &near_a_cut);
      std::map<int32_t, int> by_index;
      std::map<int32_t, int> by_seed;
      for (int i = 0; i < kDraws; ++i) {
        params.seed = 17;
        ++by_index[SampleOne(logits, params, static_cast<uint64_t>(i))];
        params.seed = static_cast<uint64_t>(i);
        ++by_seed[SampleOne(logits, params, 3)];
      }
      // 7 degrees of freedom: 40 has a probability under 2e-6; the seeds are fixed.
      EXPECT_LT(ChiSquare(by_index, expected, kDraws), 40.0);
      EXPECT_LT(ChiSquare(by_seed, expected, kDraws), 40.0);
      EXPECT_EQ(by_index.size(), expected.size());
    }
  }
}

TEST(SamplerTest, IsAFunctionOfSeedChoiceAndIndex) {
  std::vector<float> logits(1000);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<float>(i % 7) * 0.1f;
  }
  SamplingParams params;
  params.seed = 5;
  const int32_t first = SampleOne(logits, params, 9);
  EXPECT_EQ(SampleOne(logits, params, 9), first);
  SamplingParams other_choice = params;
  other_choice.choice = 1;
  SamplingParams other_seed = params;
  other_seed.seed = 6;
  // 1000 near-uniform tokens: equal by chance once in a thousand; the seeds are fixed.
  EXPECT_NE(SampleOne(logits, params, 10), first);
  EXPECT_NE(SampleOne(logits, other_choice, 9), first);
  EXPECT_NE(SampleOne(logits, other_seed, 9), first);
}

TEST(SamplerTest, GreedyTakesTheLargestAndTheLowestIdOfTies) {
  EXPECT_EQ(SampleOne({0.0f, 3.0f, 3.0f, 1.0f}, Greedy()), 1);
  SamplingParams nearly = Greedy();
  nearly.temperature = 9e-6f;
  EXPECT_EQ(SampleOne({0.0f, 1.0f, 1.0f}, nearly), 1);
  SamplingParams top_one;
  top_one.top_k = 1;
  EXPECT_EQ(SampleOne({0.0f, 1.0f, 1.0f}, top_one), 1);
}

TEST(SamplerTest, TinyTemperaturesAboveTheGreedyBoundStayFinite) {
  SamplingParams params;
  params.temperature = 2e-5f;
  for (uint64_t index = 0; index < 20; ++index) {
    EXPECT_EQ(SampleOne({100.0f, -100.0f, 99.0f}, params, index), 0);
  }
}

TEST(SamplerTest, NanLosesToEveryNumber) {
  EXPECT_EQ(SampleOne({kNan, -5.0f, kNan}, Greedy()), 1);
  EXPECT_EQ(SampleOne({kNan, -kInfinity}, Greedy()), 1);
  EXPECT_EQ(SampleOne({kNan, kNan}, Greedy()), 0);
  for (uint64_t index = 0; index < 50; ++index) {
    const int32_t token = SampleOne({kNan, 1.0f, -kInfinity, 1.0f}, SamplingParams(), index);
    EXPECT_TRUE(token == 1 || token == 3) << token;
  }
  EXPECT_EQ(SampleOne({kNan, kNan}, SamplingParams()), 0);
  EXPECT_EQ(SampleOne({kNan, -kInfinity, -kInfinity}, SamplingParams()), 1);
}

TEST(SamplerTest, InfiniteLogitsTakeAllTheMass) {
  std::map<int32_t, int> counts;
  for (uint64_t index = 0; index < 200; ++index) {
    ++counts[SampleOne({1.0f, kInfinity, 2.0f, kInfinity}, SamplingParams(), index)];
  }
  EXPECT_EQ(counts.size(), 2u);
  EXPECT_GT(counts[1], 60);
  EXPECT_GT(counts[3], 60);
}

TEST(SamplerTest, ABiasOfAHundredBansOrForces) {
  SamplingParams params;
  params.logit_bias = {{2, -100.0f}};
  for (uint64_t index = 0; index < 200; ++index) {
    EXPECT_NE(SampleOne({0.0f, 0.0f, 5.0f, 0.0f}, params, index), 2);
  }
  params.logit_bias = {{3, 100.0f}};
  for (uint64_t index = 0; index < 200; ++index) {
    EXPECT_EQ(SampleOne({0.0f, 0.0f, 5.0f, 0.0f}, params, index), 3);
  }
}

TEST(SamplerTest, PenaltiesCountGeneratedTokensAndRepetitionThePromptToo) {
  const std::vector<float> logits = {2.0f, 1.9f, -1.0f};
  TokenHistory prompt_only;
  prompt_only.AddPrompt(std::vector<int32_t>{0, 0});
  TokenHistory generated;
  generated.AddGenerated(0);

  SamplingParams params = Greedy();
  params.presence_penalty = 0.5f;
  EXPECT_EQ(SampleOne(logits, params, 0, prompt_only), 0);
  EXPECT_EQ(SampleOne(logits, params, 0, generated), 1);

  params = Greedy();
  params.frequency_penalty = 0.06f;
  EXPECT_EQ(SampleOne(logits, params, 0, generated), 0);
  generated.AddGenerated(0);
  EXPECT_EQ(SampleOne(logits, params, 0, generated), 1);

  params = Greedy();
  params.repetition_penalty = 1.1f;
  EXPECT_EQ(SampleOne(logits, params, 0, prompt_only), 1);

  // A negative logit is multiplied, so it sinks as well.
  TokenHistory negative;
  negative.AddPrompt(std::vector<int32_t>{0});
  EXPECT_EQ(SampleOne({-1.0f, -1.05f}, params, 0, negative), 1);
}

TEST(SamplerTest, TopPKeepsTheTokenThatReachesIt) {
  SamplingParams params;
  const std::vector<float> logits = {1.0f, 1.0f, 1.0f, 1.0f};
  const auto drawn = [&](float top_p) {
    params.top_p = top_p;
    std::map<int32_t, int> counts;
    for (uint64_t index = 0; index < 300; ++index) {
      ++counts[SampleOne(logits, params, index)];
    }
    return counts;
  };
  EXPECT_EQ(drawn(0.5f).size(), 2u);  // exactly half: two of four
  EXPECT_EQ(drawn(0.51f).size(), 3u);
  EXPECT_EQ(drawn(1e-6f).size(), 1u);                               // never none
  EXPECT_TRUE(drawn(0.5f).contains(0) && drawn(0.5f).contains(1));  // ties: the lower ids
  EXPECT_EQ(drawn(1.0f).size(), 4u);
}

TEST(SamplerTest, MinPOneKeepsTheLargestOnly) {
  SamplingParams params;
  params.min_p = 1.0f;
  std::map<int32_t, int> counts;
  for (uint64_t index = 0; index < 200; ++index) {
    ++counts[SampleOne({1.0f, 0.999f, 1.0f, 0.0f}, params, index)];
  }
  EXPECT_EQ(counts.size(), 2u);
  EXPECT_TRUE(counts.contains(0) && counts.contains(2));
}

TEST(SamplerTest, OnlyAllowedTokensAreTaken) {
  std::vector<float> logits(130, 0.0f);
  logits[5] = 9.0f;
  std::vector<uint64_t> allowed(3, 0);
  allowed[1] = uint64_t{1} << 3;  // 67
  allowed[2] = uint64_t{1} << 1;  // 129
  EXPECT_EQ(SampleOne(logits, Greedy(), 0, TokenHistory(), allowed), 67);
  std::map<int32_t, int> counts;
  for (uint64_t index = 0; index < 100; ++index) {
    ++counts[SampleOne(logits, SamplingParams(), index, TokenHistory(), allowed)];
  }
  EXPECT_EQ(counts.size(), 2u);
  EXPECT_TRUE(counts.contains(67) && counts.contains(129));
  const std::vector<uint64_t> nothing(3, 0);
  EXPECT_EQ(SampleOne(logits, Greedy(), 0, TokenHistory(), nothing), 5);
}

TEST(SamplerTest, LogprobsAreOfTheRawLogitsBestFirst) {
  Sampler sampler(4);
  SamplingParams params = Greedy();
  params.num_logprobs = 3;
  params.logit_bias = {{0, 100.0f}};
  const std::vector<float> logits = {0.0f, 2.0f, 1.0f, 1.0f};
  const SampledToken result = sampler.Sample(logits, params, TokenHistory(), 0);
  EXPECT_EQ(result.token, 0);
  const double log_sum = std::log(1.0 + std::exp(2.0) + 2.0 * std::exp(1.0));
  EXPECT_NEAR(result.logprob, -log_sum, 1e-6);  // rounding to f32
  ASSERT_EQ(result.top.size(), 3u);
  EXPECT_EQ(result.top[0].token, 1);
  EXPECT_EQ(result.top[1].token, 2);
  EXPECT_EQ(result.top[2].token, 3);
  EXPECT_NEAR(result.top[0].logprob, 2.0 - log_sum, 1e-6);
}

TEST(SamplerTest, LogprobsNeverLeaveTheFloor) {
  Sampler sampler(3);
  SamplingParams params = Greedy();
  params.num_logprobs = 20;
  const SampledToken result =
      sampler.Sample(std::vector<float>{-kInfinity, kNan, 0.0f}, params, TokenHistory(), 0);
  EXPECT_EQ(result.token, 2);
  EXPECT_EQ(result.logprob, 0.0f);
  ASSERT_EQ(result.top.size(), 3u);
  EXPECT_EQ(result.top[1].logprob, -9999.0f);
  EXPECT_EQ(result.top[2].logprob, -9999.0f);
  params.num_logprobs = -1;
  EXPECT_TRUE(
      sampler.Sample(std::vector<float>{0.0f, 0.0f, 0.0f}, params, TokenHistory(), 0).top.empty());
}

TEST(SamplerTest, ZeroLogprobsStillGiveTheTokensOwn) {
  Sampler sampler(2);
  SamplingParams params = Greedy();
  params.num_logprobs = 0;
  const SampledToken result =
      sampler.Sample(std::vector<float>{1.0f, 1.0f}, params, TokenHistory(), 0);
  EXPECT_NEAR(result.logprob, -std::log(2.0), 1e-6);
  EXPECT_TRUE(result.top.empty());
}

TEST(TokenHistoryTest, CountsDistinctTokensInOrder) {
  TokenHistory history;
  history.AddPrompt(std::vector<int32_t>{7, 3, 7});
  history.AddGenerated(3);
  history.AddGenerated(100'000);
  history.AddGenerated(3);
  ASSERT_EQ(history.entries().size(), 3u);
  EXPECT_EQ(history.entries()[0].token, 7);
  EXPECT_EQ(history.entries()[0].generated, 0);
  EXPECT_EQ(history.entries()[1].generated, 2);
  EXPECT_EQ(history.entries()[2].token, 100'000);
  EXPECT_EQ(history.entries()[2].generated, 1);
}

}  // namespace
}  // namespace headroom::engine
