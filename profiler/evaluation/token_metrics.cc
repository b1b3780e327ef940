#include "profiler/evaluation/token_metrics.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace headroom::profiler {

int32_t TopToken(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double LogNormalizer(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) {
    sum += std::exp(static_cast<double>(logit) - top);
  }
  return top + std::log(sum);
}

double TokenNll(std::span<const float> logits, int32_t token) {
  return LogNormalizer(logits) - static_cast<double>(logits[static_cast<size_t>(token)]);
}

TokenScore CompareLogits(std::span<const float> full, std::span<const float> compressed,
                         int32_t true_token) {
  HEADROOM_CHECK(full.size() == compressed.size() && !full.empty());
  const double log_full = LogNormalizer(full);
  const double log_compressed = LogNormalizer(compressed);
  TokenScore score;
  for (size_t i = 0; i < full.size(); ++i) {
    const double log_p = static_cast<double>(full[i]) - log_full;
    const double log_q = static_cast<double>(compressed[i]) - log_compressed;
    score.kl += std::exp(log_p) * (log_p - log_q);
  }
  score.nll = log_compressed - static_cast<double>(compressed[static_cast<size_t>(true_token)]);
  score.top1_agrees = TopToken(full) == TopToken(compressed);
  return score;
}

std::vector<uint8_t> KeyTokens(std::span<const double> full_nll, std::span<const double> short_nll,
                               const KeyTokenRule& rule) {
  HEADROOM_CHECK(full_nll.size() == short_nll.size());
  std::vector<uint8_t> keys(full_nll.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    keys[i] = short_nll[i] - full_nll[i] > rule.min_gain && full_nll[i] < rule.max_full_nll;
  }
  return keys;
}

double Quantile(std::vector<double> values, double share) {
  if (values.empty()) {
    return 0.0;
  }
  const double rank = std::ceil(share * static_cast<double>(values.size()));
  const auto index = static_cast<size_t>(std::max(rank, 1.0)) - 1;
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::min(index, values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace headroom::profiler
