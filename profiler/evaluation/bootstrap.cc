#include "profiler/evaluation/bootstrap.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/check.h"
#include "base/philox.h"

namespace headroom::profiler {
namespace {

constexpr size_t kFewestUnits = 3;

// Linear between the order statistics of sorted values: position share * (n - 1).
double SortedQuantile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

}  // namespace

Bootstrap::Bootstrap(const std::vector<std::string>& strata, int32_t num_resamples, uint64_t seed)
    : num_units_(static_cast<int32_t>(strata.size())), num_resamples_(num_resamples) {
  HEADROOM_CHECK(num_resamples >= 1);
  std::map<std::string, std::vector<int32_t>> members;
  for (size_t i = 0; i < strata.size(); ++i) {
    members[strata[i]].push_back(static_cast<int32_t>(i));
  }
  std::vector<int32_t> pooled;
  for (auto stratum = members.begin(); stratum != members.end();) {
    if (stratum->second.size() >= kFewestUnits) {
      ++stratum;
      continue;
    }
    pooled.insert(pooled.end(), stratum->second.begin(), stratum->second.end());
    stratum = members.erase(stratum);
  }
  std::vector<std::vector<int32_t>> groups;
  for (auto& [name, units] : members) {
    groups.push_back(std::move(units));
  }
  if (!pooled.empty()) {
    groups.push_back(std::move(pooled));
  }
  const Philox random(seed);
  draws_.reserve(strata.size() * static_cast<size_t>(num_resamples));
  uint64_t counter = 0;
  for (int32_t resample = 0; resample < num_resamples; ++resample) {
    for (const std::vector<int32_t>& units : groups) {
      for (size_t i = 0; i < units.size(); ++i) {
        const double uniform = random.Uniform(counter++);
        draws_.push_back(units[static_cast<size_t>(uniform * static_cast<double>(units.size()))]);
      }
    }
  }
}

std::optional<Interval> Bootstrap::Ratio(std::span<const double> numerators,
                                         std::span<const double> denominators) const {
  const auto num_units = static_cast<size_t>(num_units_);
  HEADROOM_CHECK(numerators.size() == num_units && denominators.size() == num_units);
  double numerator = 0.0;
  double denominator = 0.0;
  for (size_t i = 0; i < num_units; ++i) {
    numerator += numerators[i];
    denominator += denominators[i];
  }
  if (denominator == 0.0) {
    return std::nullopt;
  }
  std::vector<double> resampled;
  resampled.reserve(static_cast<size_t>(num_resamples_));
  const int32_t* draw = draws_.data();
  for (int32_t resample = 0; resample < num_resamples_; ++resample, draw += num_units) {
    double top = 0.0;
    double bottom = 0.0;
    for (size_t i = 0; i < num_units; ++i) {
      top += numerators[static_cast<size_t>(draw[i])];
      bottom += denominators[static_cast<size_t>(draw[i])];
    }
    if (bottom != 0.0) {
      resampled.push_back(top / bottom);
    }
  }
  std::sort(resampled.begin(), resampled.end());
  Interval interval;
  interval.value = numerator / denominator;
  interval.low = resampled.empty() ? interval.value : SortedQuantile(resampled, 0.025);
  interval.high = resampled.empty() ? interval.value : SortedQuantile(resampled, 0.975);
  return interval;
}

std::optional<Interval> Bootstrap::Mean(std::span<const double> values) const {
  return Ratio(values, std::vector<double>(values.size(), 1.0));
}

double McNemarExact(int64_t lost, int64_t won) {
  HEADROOM_CHECK(lost >= 0 && won >= 0);
  const auto total = static_cast<double>(lost + won);
  const int64_t fewer = std::min(lost, won);
  double tail = 0.0;
  for (int64_t k = 0; k <= fewer; ++k) {
    const auto count = static_cast<double>(k);
    tail += std::exp(std::lgamma(total + 1.0) - std::lgamma(count + 1.0) -
                     std::lgamma(total - count + 1.0) - total * std::log(2.0));
  }
  return std::min(1.0, 2.0 * tail);
}

std::vector<double> HolmAdjusted(std::span<const double> p_values) {
  std::vector<size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return p_values[a] < p_values[b]; });
  std::vector<double> adjusted(p_values.size());
  double largest = 0.0;
  for (size_t k = 0; k < order.size(); ++k) {
    const auto left = static_cast<double>(order.size() - k);
    largest = std::max(largest, std::min(1.0, left * p_values[order[k]]));
    adjusted[order[k]] = largest;
  }
  return adjusted;
}

}  // namespace headroom::profiler
