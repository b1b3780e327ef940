#include "profiler/prompt_masses.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/philox.h"

namespace headroom::profiler {
namespace {

constexpr int32_t kFullMass = 1'000'000;
constexpr int64_t kDomainWeight = 1'000'000'000;  // of each domain
constexpr int64_t kTenth = 10;
constexpr double kWeightUnits = 1000.0;
constexpr double kMostWeight = 1e6;

}  // namespace

PromptMasses::PromptMasses(const HeadShape& shape, size_t num_rungs)
    : shape_(shape), num_rungs_(num_rungs) {
  HEADROOM_CHECK(num_rungs >= 1 && shape.num_kv_heads >= 1 &&
                 shape.num_query_heads % shape.num_kv_heads == 0);
}

int32_t PromptMasses::DomainIndex(const std::string& name) {
  const auto found = std::find(domains_.begin(), domains_.end(), name);
  if (found != domains_.end()) {
    return static_cast<int32_t>(found - domains_.begin());
  }
  domains_.push_back(name);
  return static_cast<int32_t>(domains_.size() - 1);
}

void PromptMasses::Add(const PromptRecord& record) {
  const auto group = static_cast<size_t>(shape_.group_size());
  const size_t num_heads = shape_.num_heads();
  HEADROOM_CHECK(record.mass_ppm.size() == num_heads * group * num_rungs_);
  Prompt prompt;
  prompt.domain = DomainIndex(record.domain);
  prompt.weight = std::max<int64_t>(
      1, std::llround(std::clamp(record.weight, 0.0, kMostWeight) * kWeightUnits));
  prompt.num_tokens = record.num_tokens;
  prompt.num_special = record.num_special;
  prompt.num_punctuation = record.num_punctuation;
  prompt.mass_ppm.assign(num_heads * num_rungs_, kFullMass);
  for (size_t head = 0; head < num_heads; ++head) {
    int32_t* least = prompt.mass_ppm.data() + head * num_rungs_;
    for (size_t member = 0; member < group; ++member) {
      const int32_t* mass = record.mass_ppm.data() + (head * group + member) * num_rungs_;
      for (size_t rung = 0; rung + 1 < num_rungs_; ++rung) {
        least[rung] = std::min(least[rung], mass[rung]);
      }
    }
  }
  prompts_.push_back(std::move(prompt));
}

void PromptMasses::Sort() {
  std::vector<int32_t> order(domains_.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [this](int32_t a, int32_t b) {
    return domains_[static_cast<size_t>(a)] < domains_[static_cast<size_t>(b)];
  });
  std::vector<int32_t> rank(domains_.size());
  std::vector<std::string> names;
  for (size_t i = 0; i < order.size(); ++i) {
    rank[static_cast<size_t>(order[i])] = static_cast<int32_t>(i);
    names.push_back(domains_[static_cast<size_t>(order[i])]);
  }
  domains_ = std::move(names);
  for (Prompt& prompt : prompts_) {
    prompt.domain = rank[static_cast<size_t>(prompt.domain)];
  }
  const auto key = [](const Prompt& prompt) {
    return std::tie(prompt.domain, prompt.num_tokens, prompt.num_special, prompt.num_punctuation,
                    prompt.weight, prompt.mass_ppm);
  };
  std::sort(prompts_.begin(), prompts_.end(),
            [&key](const Prompt& a, const Prompt& b) { return key(a) < key(b); });
}

std::vector<int64_t> PromptMasses::BalancedWeights() const {
  std::vector<int64_t> sums(domains_.size(), 0);
  for (const Prompt& prompt : prompts_) {
    sums[static_cast<size_t>(prompt.domain)] += prompt.weight;
  }
  std::vector<int64_t> weights;
  weights.reserve(prompts_.size());
  for (const Prompt& prompt : prompts_) {
    const int64_t sum = sums[static_cast<size_t>(prompt.domain)];
    // Weights of up to 1e9 thousandths: the product stays below 2^63.
    weights.push_back(std::max<int64_t>(1, prompt.weight * kDomainWeight / sum));
  }
  return weights;
}

ReferenceLength PromptMasses::Reference(std::span<const int32_t> sample) const {
  const std::vector<int64_t> weights = BalancedWeights();
  int64_t total = 0;
  double tokens = 0.0;
  double special = 0.0;
  double punctuation = 0.0;
  // Doubles hold these sums exactly up to 2^53; beyond, in the order of Sort.
  for (size_t i = 0; i < prompts_.size(); ++i) {
    const int64_t weight = weights[i] * sample[i];
    total += weight;
    tokens += static_cast<double>(weight) * prompts_[i].num_tokens;
    special += static_cast<double>(weight) * prompts_[i].num_special;
    punctuation += static_cast<double>(weight) * prompts_[i].num_punctuation;
  }
  if (total == 0) {
    return {};
  }
  const auto mean = [total](double sum) {
    return static_cast<int64_t>(std::llround(sum / static_cast<double>(total)));
  };
  return {.num_tokens = mean(tokens),
          .num_special = mean(special),
          .num_punctuation = mean(punctuation)};
}

std::vector<uint8_t> PromptMasses::Passes(const PassRule& rule,
                                          std::span<const int32_t> sample) const {
  HEADROOM_CHECK(sample.size() == prompts_.size());
  const size_t size = shape_.num_heads() * num_rungs_;
  const std::vector<int64_t> weights = BalancedWeights();
  std::vector<int64_t> failed(size, 0);
  std::vector<std::vector<int64_t>> sums(domains_.size());
  std::vector<int64_t> domain_weights(domains_.size(), 0);
  int64_t total = 0;
  for (size_t i = 0; i < prompts_.size(); ++i) {
    const int64_t weight = weights[i] * sample[i];
    if (weight == 0) {
      continue;
    }
    total += weight;
    const auto domain = static_cast<size_t>(prompts_[i].domain);
    domain_weights[domain] += weight;
    sums[domain].resize(size, 0);
    const int32_t* mass = prompts_[i].mass_ppm.data();
    int64_t* sum = sums[domain].data();
    for (size_t at = 0; at < size; ++at) {
      failed[at] += mass[at] < rule.theta_ppm ? weight : 0;
      sum[at] += weight * mass[at];
    }
  }
  std::vector<uint8_t> passes(size, 0);
  for (size_t at = 0; at < size; ++at) {
    // P10 >= theta: less than a tenth of the weight lies below theta.
    bool pass = total > 0 && failed[at] * kTenth < total;
    for (size_t domain = 0; domain < sums.size() && pass; ++domain) {
      pass = domain_weights[domain] == 0 ||
             sums[domain][at] >= (rule.theta_ppm - rule.domain_slack_ppm) * domain_weights[domain];
    }
    passes[at] = pass ? 1 : 0;
  }
  return passes;
}

std::vector<int64_t> PromptMasses::P10() const {
  const size_t size = shape_.num_heads() * num_rungs_;
  const std::vector<int64_t> weights = BalancedWeights();
  const int64_t total = std::accumulate(weights.begin(), weights.end(), int64_t{0});
  std::vector<int64_t> result(size, 0);
  std::vector<std::pair<int32_t, int64_t>> sorted(prompts_.size());
  for (size_t at = 0; at < size; ++at) {
    for (size_t i = 0; i < prompts_.size(); ++i) {
      sorted[i] = {prompts_[i].mass_ppm[at], weights[i]};
    }
    std::sort(sorted.begin(), sorted.end());
    int64_t reached = 0;
    for (const auto& [mass, weight] : sorted) {
      reached += weight;
      if (reached * kTenth >= total) {
        result[at] = mass;
        break;
      }
    }
  }
  return result;
}

std::vector<int64_t> PromptMasses::Mean() const {
  const size_t size = shape_.num_heads() * num_rungs_;
  const std::vector<int64_t> weights = BalancedWeights();
  int64_t total = 0;
  std::vector<int64_t> sums(size, 0);
  for (size_t i = 0; i < prompts_.size(); ++i) {
    total += weights[i];
    for (size_t at = 0; at < size; ++at) {
      sums[at] += weights[i] * prompts_[i].mass_ppm[at];
    }
  }
  for (int64_t& sum : sums) {
    sum = total == 0 ? 0 : sum / total;
  }
  return sums;
}

std::vector<int32_t> PromptMasses::OfDomain(int32_t domain) const {
  std::vector<int32_t> sample(prompts_.size(), 0);
  for (size_t i = 0; i < prompts_.size(); ++i) {
    sample[i] = prompts_[i].domain == domain ? 1 : 0;
  }
  return sample;
}

std::vector<int32_t> PromptMasses::Resample(uint64_t seed, int32_t index) const {
  const Philox random(seed, static_cast<uint64_t>(index));
  std::vector<std::vector<size_t>> members(domains_.size());
  for (size_t i = 0; i < prompts_.size(); ++i) {
    members[static_cast<size_t>(prompts_[i].domain)].push_back(i);
  }
  std::vector<int32_t> sample(prompts_.size(), 0);
  uint64_t counter = 0;
  for (const std::vector<size_t>& domain : members) {
    for (size_t draw = 0; draw < domain.size(); ++draw) {
      const double at = random.Uniform(counter++) * static_cast<double>(domain.size());
      ++sample[domain[static_cast<size_t>(at)]];
    }
  }
  return sample;
}

std::vector<std::vector<int32_t>> PromptMasses::ByLength(size_t fewest) const {
  std::vector<size_t> order(prompts_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [this](size_t a, size_t b) {
    return prompts_[a].num_tokens < prompts_[b].num_tokens;
  });
  std::vector<std::vector<int32_t>> samples;
  for (size_t begin = 0; begin < order.size();) {
    const int64_t first = prompts_[order[begin]].num_tokens;
    size_t end = begin;
    std::vector<int32_t> sample(prompts_.size(), 0);
    while (end < order.size() && int64_t{prompts_[order[end]].num_tokens} * 2 < first * 3) {
      sample[order[end++]] = 1;
    }
    end = std::max(end, begin + 1);
    sample[order[begin]] = 1;
    if (end - begin >= fewest) {
      samples.push_back(std::move(sample));
    }
    begin = end;
  }
  return samples;
}

}  // namespace headroom::profiler
