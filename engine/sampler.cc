#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "base/check.h"
#include "base/philox.h"

namespace headroom::engine {
namespace {

constexpr float kGreedyTemperature = 1e-5f;
constexpr float kLogprobFloor = -9999.0f;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// NaN is below -inf; every other pair compares as numbers do.
bool Less(float a, float b) { return a < b || (std::isnan(a) && !std::isnan(b)); }

bool HasPenalties(const SamplingParams& params) {
  return params.presence_penalty != 0.0f || params.frequency_penalty != 0.0f ||
         params.repetition_penalty != 1.0f;
}

void ApplyPenalties(const SamplingParams& params, const TokenHistory& history,
                    std::span<float> logits) {
  for (const TokenHistory::Entry& entry : history.entries()) {
    if (static_cast<size_t>(entry.token) >= logits.size()) {
      continue;
    }
    float& logit = logits[static_cast<size_t>(entry.token)];
    // The published rule of repetition penalty (CTRL 1909.05858): positive logits are divided,
    // negative ones multiplied.
    logit = logit > 0.0f ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    if (entry.generated > 0) {
      logit -= params.presence_penalty;
      logit -= params.frequency_penalty * static_cast<float>(entry.generated);
    }
  }
}

void ApplyBias(const SamplingParams& params, std::span<float> logits) {
  for (const auto& [token, bias] : params.logit_bias) {
    if (token >= 0 && static_cast<size_t>(token) < logits.size()) {
      logits[static_cast<size_t>(token)] += bias;
    }
  }
}

// Disallowed tokens become NaN, which loses to every number. A set that allows nothing is ignored.
void ApplyAllowed(std::span<const uint64_t> allowed, std::span<float> logits) {
  const auto is_allowed = [&](size_t i) { return (allowed[i / 64] >> (i % 64) & 1) != 0; };
  bool any = false;
  for (size_t i = 0; i < logits.size() && !any; ++i) {
    any = is_allowed(i);
  }
  for (size_t i = 0; any && i < logits.size(); ++i) {
    if (!is_allowed(i)) {
      logits[i] = std::numeric_limits<float>::quiet_NaN();
    }
  }
}

int32_t ArgMax(std::span<const float> logits) {
  size_t best = 0;
  for (size_t i = 1; i < logits.size(); ++i) {
    if (Less(logits[best], logits[i])) {
      best = i;
    }
  }
  return static_cast<int32_t>(best);
}

// log(sum(exp(logits))) shifted by the largest logit: logprob(i) = logits[i] - max - log_sum.
struct LogNormalizer {
  float max = -kInfinity;
  double log_sum = 0.0;

  float Logprob(float logit) const {
    if (std::isnan(logit) || max == -kInfinity) {
      return kLogprobFloor;
    }
    // With +inf among the logits the mass lies on those alone.
    const double shifted = logit == max ? 0.0 : static_cast<double>(logit) - max;
    return std::max(kLogprobFloor, static_cast<float>(shifted - log_sum));
  }
};

LogNormalizer Normalize(std::span<const float> logits) {
  LogNormalizer result;
  for (const float logit : logits) {
    if (logit > result.max) {
      result.max = logit;
    }
  }
  double sum = 0.0;
  for (const float logit : logits) {
    if (logit == result.max) {
      sum += 1.0;
    } else if (!std::isnan(logit)) {
      sum += std::exp(static_cast<double>(logit) - result.max);
    }
  }
  result.log_sum = std::log(sum);
  return result;
}

}  // namespace

void TokenHistory::AddPrompt(std::span<const int32_t> ids) {
  for (const int32_t id : ids) {
    FindOrAdd(id);
  }
}

void TokenHistory::AddGenerated(int32_t id) { ++FindOrAdd(id).generated; }

TokenHistory::Entry& TokenHistory::FindOrAdd(int32_t id) {
  const auto slot = static_cast<size_t>(id);
  if (slot >= index_.size()) {
    index_.resize(std::max(slot + 1, index_.size() * 2), 0);
  }
  if (index_[slot] == 0) {
    entries_.push_back({.token = id});
    index_[slot] = static_cast<int32_t>(entries_.size());
  }
  return entries_[static_cast<size_t>(index_[slot] - 1)];
}

Sampler::Sampler(int32_t vocab_size) : vocab_size_(vocab_size) {
  HEADROOM_CHECK(vocab_size > 0);
  scratch_.reserve(static_cast<size_t>(vocab_size));
  candidates_.reserve(static_cast<size_t>(vocab_size));
  selection_.reserve(static_cast<size_t>(vocab_size));
}

SampledToken Sampler::Sample(std::span<const float> logits, const SamplingParams& params,
                             const TokenHistory& history, uint64_t token_index,
                             std::span<const uint64_t> allowed) {
  HEADROOM_CHECK(logits.size() == static_cast<size_t>(vocab_size_));
  HEADROOM_CHECK(allowed.empty() || allowed.size() * 64 >= logits.size());
  std::span<const float> adjusted = logits;
  if (HasPenalties(params) || !params.logit_bias.empty() || !allowed.empty()) {
    scratch_.assign(logits.begin(), logits.end());
    if (HasPenalties(params)) {
      ApplyPenalties(params, history, scratch_);
    }
    ApplyBias(params, scratch_);
    if (!allowed.empty()) {
      ApplyAllowed(allowed, scratch_);
    }
    adjusted = scratch_;
  }

  SampledToken result;
  const int32_t best = ArgMax(adjusted);
  result.token = params.temperature < kGreedyTemperature || params.top_k == 1
                     ? best
                     : Draw(adjusted, best, params, token_index);
  if (params.num_logprobs >= 0) {
    AddLogprobs(logits, params.num_logprobs, result);
  }
  return result;
}

int32_t Sampler::Draw(std::span<const float> logits, int32_t best, const SamplingParams& params,
                      uint64_t token_index) {
  const float max = logits[static_cast<size_t>(best)];
  if (std::isnan(max) || max == -kInfinity) {
    return best;  // no number to weigh
  }
  CollectCandidates(logits, max, params);
  KeepTopK(params.top_k);
  // The largest weight is exp(0) = 1 and stays, so min_p compares with the weight itself.
  if (params.min_p > 0.0f) {
    std::erase_if(candidates_, [&](const Candidate& candidate) {
      return candidate.weight < static_cast<double>(params.min_p);
    });
  }
  KeepTopP(params.top_p);

  double total = 0.0;
  for (const Candidate& candidate : candidates_) {
    total += candidate.weight;
  }
  const double target = Philox(params.seed, params.choice).Uniform(token_index) * total;
  double sum = 0.0;
  int32_t last = best;
  for (const Candidate& candidate : candidates_) {
    sum += candidate.weight;
    if (candidate.weight > 0.0) {
      last = candidate.token;
      if (sum > target) {
        break;
      }
    }
  }
  return last;
}

void Sampler::CollectCandidates(std::span<const float> logits, float max,
                                const SamplingParams& params) {
  candidates_.clear();
  const double inverse = 1.0 / static_cast<double>(params.temperature);
  for (size_t i = 0; i < logits.size(); ++i) {
    const float logit = logits[i];
    if (std::isnan(logit) || logit == -kInfinity) {
      continue;
    }
    const double weight =
        logit == max ? 1.0 : std::exp((static_cast<double>(logit) - max) * inverse);
    candidates_.push_back({weight, logit, static_cast<int32_t>(i)});
  }
}

// Better first: by logit, not by weight, because weights of different logits may round alike.
bool Sampler::Candidate::Before(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

// Keeps `cut` and what is better. The candidates stay in order of token id, so that the draw does
// not depend on how a selection ordered them.
void Sampler::CutBehind(const Candidate& cut) {
  std::erase_if(candidates_,
                [&](const Candidate& candidate) { return Candidate::Before(cut, candidate); });
}

void Sampler::KeepTopK(int32_t top_k) {
  if (top_k <= 0 || static_cast<size_t>(top_k) >= candidates_.size()) {
    return;
  }
  selection_ = candidates_;
  const auto last = selection_.begin() + (top_k - 1);
  std::nth_element(selection_.begin(), last, selection_.end(), Candidate::Before);
  CutBehind(*last);
}

// The fewest best candidates whose weights reach top_p of the total: bisection over
// nth_element, linear in the number of candidates.
void Sampler::KeepTopP(float top_p) {
  if (!(top_p < 1.0f) || candidates_.size() <= 1) {
    return;
  }
  double total = 0.0;
  for (const Candidate& candidate : candidates_) {
    total += candidate.weight;
  }
  const double target = static_cast<double>(top_p) * total;
  // All candidates lighter than this together weigh less than what top_p leaves out, so the cut
  // lies before them. Half the bound: sums round.
  const double negligible = 0.5 * (total - target) / static_cast<double>(candidates_.size());
  selection_.clear();
  std::copy_if(candidates_.begin(), candidates_.end(), std::back_inserter(selection_),
               [&](const Candidate& candidate) { return candidate.weight >= negligible; });
  size_t begin = 0;  // candidates before it are kept; their weights sum to `kept`
  size_t end = selection_.size();
  double kept = 0.0;
  while (begin + 1 < end) {
    const size_t middle = begin + (end - begin) / 2;
    const auto first = selection_.begin();
    std::nth_element(first + static_cast<ptrdiff_t>(begin), first + static_cast<ptrdiff_t>(middle),
                     first + static_cast<ptrdiff_t>(end), Candidate::Before);
    double sum = 0.0;
    for (size_t i = begin; i < middle; ++i) {
      sum += selection_[i].weight;
    }
    if (kept + sum >= target) {
      end = middle;
    } else {
      kept += sum;
      begin = middle;
    }
  }
  const Candidate cut = selection_[begin];
  CutBehind(cut);
}

void Sampler::AddLogprobs(std::span<const float> logits, int32_t num_logprobs,
                          SampledToken& result) {
  const LogNormalizer normalizer = Normalize(logits);
  result.logprob = normalizer.Logprob(logits[static_cast<size_t>(result.token)]);
  const size_t count = std::min(static_cast<size_t>(num_logprobs), logits.size());
  if (count == 0) {
    return;
  }
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    const float logit = std::isnan(logits[i]) ? -kInfinity : logits[i];
    candidates_.push_back({0.0, logit, static_cast<int32_t>(i)});
  }
  const auto middle = candidates_.begin() + static_cast<ptrdiff_t>(count);
  std::partial_sort(candidates_.begin(), middle, candidates_.end(), Candidate::Before);
  for (size_t i = 0; i < count; ++i) {
    result.top.push_back(
        {.token = candidates_[i].token, .logprob = normalizer.Logprob(candidates_[i].logit)});
  }
}

}  // namespace headroom::engine
