// What one row of logits says of the next token, and how two rows differ. Sums run in double, in
// index order, so that equal logits give equal numbers: a divergence of exactly 0.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace headroom::profiler {

// Of the largest logit; the lowest id of equal ones.
int32_t TopToken(std::span<const float> logits);
// log(sum(exp(logits))).
double LogNormalizer(std::span<const float> logits);
// -log softmax(logits)[token], in nats.
double TokenNll(std::span<const float> logits, int32_t token);

struct TokenScore {
  double nll = 0.0;  // of the true token under the compressed cache, nats
  double kl = 0.0;   // KL(full || compressed), nats
  bool top1_agrees = false;
};
// `full` and `compressed` are [vocab] and follow the same tokens.
TokenScore CompareLogits(std::span<const float> full, std::span<const float> compressed,
                         int32_t true_token);

// Tokens that only a long context predicts: NLL under a short context above NLL under the full one
// by more than `min_gain`, and the latter below `max_full_nll` [PKU-ML/LongPPL].
struct KeyTokenRule {
  double min_gain = 2.0;
  double max_full_nll = 2.0;
};
std::vector<uint8_t> KeyTokens(std::span<const double> full_nll, std::span<const double> short_nll,
                               const KeyTokenRule& rule);

// The smallest value that at least `share` of the values do not exceed (nearest rank); 0 of none.
double Quantile(std::vector<double> values, double share);

}  // namespace headroom::profiler
