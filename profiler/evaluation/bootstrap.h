// Paired bootstrap over units (documents or prompts, never tokens), stratified, percentile
// intervals.
//
// Source: Efron and Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 13. The draws
// depend on the seed and the strata alone, so that every policy and every measure sees the same
// resamples: differences are paired without further work.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace headroom::profiler {

// A value and its 95 % interval.
struct Interval {
  double value = 0.0;
  double low = 0.0;
  double high = 0.0;
};

class Bootstrap {
 public:
  // One stratum name per unit; a resample draws as many units of each stratum as there are. Strata
  // of one or two units are pooled: on its own a lone unit would seem to have no variance.
  Bootstrap(const std::vector<std::string>& strata, int32_t num_resamples, uint64_t seed);

  // sum(numerators) / sum(denominators) over the units [num_units]; nothing when the denominators
  // sum to 0. Resamples whose denominators do are left out of the interval.
  std::optional<Interval> Ratio(std::span<const double> numerators,
                                std::span<const double> denominators) const;
  // The mean over the units.
  std::optional<Interval> Mean(std::span<const double> values) const;

 private:
  int32_t num_units_;
  int32_t num_resamples_;
  std::vector<int32_t> draws_;  // [num_resamples, num_units], unit indices
};

// Two-sided exact McNemar p-value of paired right-or-wrong outcomes: 2 * P(Binomial(n, 1/2) <=
// min(lost, won)), at most 1, n = lost + won [McNemar 1947, exact form].
double McNemarExact(int64_t lost, int64_t won);

// p-values of several hypotheses, adjusted so that all below a level may be rejected together: the
// chance of one wrong rejection stays under that level whatever the dependence [Holm 1979]. The
// k-th smallest of m is multiplied by m - k + 1, at most 1 and never below the one before it. Same
// order as `p_values`.
std::vector<double> HolmAdjusted(std::span<const double> p_values);

}  // namespace headroom::profiler
