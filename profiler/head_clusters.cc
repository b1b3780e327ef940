#include "profiler/head_clusters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "base/check.h"
#include "base/philox.h"

namespace headroom::profiler {
namespace {

using engine::HeadEntry;
using engine::HeadType;

constexpr double kPpm = 1e6;
constexpr int kNumRestarts = 32;
constexpr int kMaxRounds = 100;
// Special with sinks, punctuation, the last 64, the rest, the window.
constexpr size_t kNumFeatures = 5;
using Point = std::array<double, kNumFeatures>;

double Logit(int64_t mass_ppm) {
  const double share = std::clamp(static_cast<double>(mass_ppm) / kPpm, 1e-4, 1.0 - 1e-4);
  return std::log(share / (1.0 - share));
}

// The first window of the curve that holds 95 %, else the reference length.
int64_t WindowOf(const HeadEntry& head, int64_t reference_tokens) {
  for (const engine::CurvePoint& point : head.curve_local) {
    if (point.mass_ppm >= 950'000) {
      return point.size;
    }
  }
  return std::max<int64_t>(reference_tokens, 1);
}

// Features with mean 0 and deviation 1.
std::vector<Point> Features(const std::vector<HeadEntry>& heads, int64_t reference_tokens) {
  std::vector<Point> points;
  for (const HeadEntry& head : heads) {
    const auto& mass = head.masses_ppm;
    points.push_back({Logit(mass[0] + mass[1]), Logit(mass[2]), Logit(mass[3]), Logit(mass[4]),
                      std::log(static_cast<double>(WindowOf(head, reference_tokens)))});
  }
  const auto count = static_cast<double>(points.size());
  for (size_t f = 0; f < kNumFeatures; ++f) {
    double mean = 0.0;
    double square = 0.0;
    for (const Point& point : points) {
      mean += point[f] / count;
      square += point[f] * point[f] / count;
    }
    const double deviation = std::sqrt(std::max(square - mean * mean, 0.0));
    for (Point& point : points) {
      point[f] = deviation > 1e-9 ? (point[f] - mean) / deviation : 0.0;
    }
  }
  return points;
}

double Distance(const Point& a, const Point& b) {
  double sum = 0.0;
  for (size_t f = 0; f < kNumFeatures; ++f) {
    sum += (a[f] - b[f]) * (a[f] - b[f]);
  }
  return sum;
}

struct Clustering {
  std::vector<int32_t> labels;
  std::vector<Point> centres;
  double cost = std::numeric_limits<double>::max();
};

std::vector<Point> FirstCentres(const std::vector<Point>& points, size_t k, const Philox& random) {
  uint64_t counter = 0;
  const auto first =
      static_cast<size_t>(random.Uniform(counter++) * static_cast<double>(points.size()));
  std::vector<Point> centres = {points[first]};
  while (centres.size() < k) {
    std::vector<double> nearest;
    double total = 0.0;
    for (const Point& point : points) {
      double least = std::numeric_limits<double>::max();
      for (const Point& centre : centres) {
        least = std::min(least, Distance(point, centre));
      }
      total += least;
      nearest.push_back(total);
    }
    const double at = random.Uniform(counter++) * total;
    const auto chosen = std::upper_bound(nearest.begin(), nearest.end(), at) - nearest.begin();
    centres.push_back(points[std::min(static_cast<size_t>(chosen), points.size() - 1)]);
  }
  return centres;
}

// One round of Lloyd's algorithm; whether a label changed.
bool Improve(const std::vector<Point>& points, Clustering* state) {
  bool changed = false;
  state->cost = 0.0;
  for (size_t i = 0; i < points.size(); ++i) {
    int32_t best = 0;
    for (size_t c = 1; c < state->centres.size(); ++c) {
      if (Distance(points[i], state->centres[c]) <
          Distance(points[i], state->centres[static_cast<size_t>(best)])) {
        best = static_cast<int32_t>(c);
      }
    }
    changed |= state->labels[i] != best;
    state->labels[i] = best;
    state->cost += Distance(points[i], state->centres[static_cast<size_t>(best)]);
  }
  for (size_t c = 0; c < state->centres.size(); ++c) {
    Point sum = {};
    double count = 0.0;
    for (size_t i = 0; i < points.size(); ++i) {
      if (state->labels[i] == static_cast<int32_t>(c)) {
        count += 1.0;
        for (size_t f = 0; f < kNumFeatures; ++f) {
          sum[f] += points[i][f];
        }
      }
    }
    for (size_t f = 0; f < kNumFeatures && count > 0.0; ++f) {
      state->centres[c][f] = sum[f] / count;
    }
  }
  return changed;
}

Clustering KMeans(const std::vector<Point>& points, size_t k, uint64_t seed) {
  Clustering best;
  for (int restart = 0; restart < kNumRestarts; ++restart) {
    const Philox random(seed, static_cast<uint64_t>(restart) | uint64_t{3} << 40);
    Clustering state;
    state.centres = FirstCentres(points, k, random);
    state.labels.assign(points.size(), -1);
    for (int round = 0; round < kMaxRounds && Improve(points, &state); ++round) {
    }
    if (state.cost < best.cost) {
      best = std::move(state);
    }
  }
  return best;
}

// How much a centre looks like a type: the feature that the type is about, against the others.
double Fit(const Point& centre, HeadType type) {
  switch (type) {
    case HeadType::kSpecial:
      return centre[0];
    case HeadType::kPunct:
      return centre[1];
    case HeadType::kLocal:
      return centre[2];
    case HeadType::kHeavy:
      return centre[3];
    case HeadType::kDense:
      return centre[3] + centre[4];
  }
  return 0.0;
}

// The types of clusters: of all ways to give each its own, the one of the largest fit.
std::vector<HeadType> NameClusters(const std::vector<Point>& centres) {
  std::vector<HeadType> names = {HeadType::kSpecial, HeadType::kPunct, HeadType::kLocal,
                                 HeadType::kHeavy};
  if (centres.size() == 5) {
    names.push_back(HeadType::kDense);
  }
  std::vector<HeadType> best;
  double best_fit = -std::numeric_limits<double>::max();
  do {
    double fit = 0.0;
    for (size_t c = 0; c < centres.size(); ++c) {
      fit += Fit(centres[c], names[c]);
    }
    if (fit > best_fit) {
      best_fit = fit;
      best.assign(names.begin(), names.begin() + static_cast<ptrdiff_t>(centres.size()));
    }
  } while (std::next_permutation(names.begin(), names.end()));
  return best;
}

// Mean distances to the own and to the nearest other cluster give (b - a) / max(a, b).
std::vector<double> Silhouettes(const std::vector<Point>& points, const Clustering& clusters) {
  std::vector<double> result;
  for (size_t i = 0; i < points.size(); ++i) {
    std::vector<double> sums(clusters.centres.size(), 0.0);
    std::vector<double> counts(clusters.centres.size(), 0.0);
    for (size_t j = 0; j < points.size(); ++j) {
      if (j != i) {
        sums[static_cast<size_t>(clusters.labels[j])] += std::sqrt(Distance(points[i], points[j]));
        counts[static_cast<size_t>(clusters.labels[j])] += 1.0;
      }
    }
    const auto own = static_cast<size_t>(clusters.labels[i]);
    double other = std::numeric_limits<double>::max();
    for (size_t c = 0; c < sums.size(); ++c) {
      if (c != own && counts[c] > 0.0) {
        other = std::min(other, sums[c] / counts[c]);
      }
    }
    const bool is_defined = counts[own] > 0.0 && other < std::numeric_limits<double>::max();
    const double inside = is_defined ? sums[own] / counts[own] : 0.0;
    const double larger = std::max(inside, is_defined ? other : 0.0);
    result.push_back(larger > 0.0 ? (other - inside) / larger : 0.0);
  }
  return result;
}

// The rung that stands for a type: of a local head the first window that its mean mass calls
// enough, of a heavy head the budget ratio.
Rung RungOf(HeadType type, const HeadEntry& head, const Ladder& ladder, int64_t budget_ratio_ppm,
            int64_t theta_ppm) {
  if (type == HeadType::kHeavy) {
    return {.name = "heavy", .punctuation = true, .heavy_ppm = budget_ratio_ppm};
  }
  const Rung* last = nullptr;
  for (size_t i = 0; i < ladder.rungs.size(); ++i) {
    const Rung& rung = ladder.rungs[i];
    if (TypeOfRung(rung) != type || (type == HeadType::kLocal && rung.punctuation)) {
      continue;
    }
    last = &rung;
    if (type != HeadType::kLocal || head.recovery[i].mean_ppm >= theta_ppm) {
      break;
    }
  }
  // The paper's ladder has no local rung.
  return last != nullptr ? *last : Rung{.name = "local", .window_ppm = budget_ratio_ppm};
}

}  // namespace

ClusterQuality ClusterHeads(int32_t num_clusters, const Ladder& ladder,
                            const ReferenceLength& reference, int64_t recent_tokens,
                            int64_t budget_ratio_ppm, int64_t theta_ppm, uint64_t seed,
                            std::vector<HeadEntry>* heads) {
  HEADROOM_CHECK(num_clusters >= 2 && num_clusters <= 5 && !heads->empty());
  const std::vector<Point> points = Features(*heads, reference.num_tokens);
  const Clustering clusters = KMeans(points, static_cast<size_t>(num_clusters), seed);
  const std::vector<HeadType> names = NameClusters(clusters.centres);
  const std::vector<double> silhouettes = Silhouettes(points, clusters);
  std::vector<int32_t> before;
  double total = 0.0;
  for (size_t i = 0; i < heads->size(); ++i) {
    HeadEntry& head = (*heads)[i];
    before.push_back(static_cast<int32_t>(head.type));
    const HeadType type = names[static_cast<size_t>(clusters.labels[i])];
    SetRung(RungOf(type, head, ladder, budget_ratio_ppm, theta_ppm), reference, recent_tokens,
            &head);
    head.weight_ppm = 1'000'000;
    head.confidence_ppm = std::llround((silhouettes[i] + 1.0) / 2.0 * kPpm);
    head.margin_ppm = 0;
    head.borderline = silhouettes[i] < 0.0;
    total += silhouettes[i];
  }
  return {.num_clusters = num_clusters,
          .silhouette_ppm = std::llround(total / static_cast<double>(heads->size()) * kPpm),
          .rand_ppm = AdjustedRandPpm(before, clusters.labels)};
}

int64_t AdjustedRandPpm(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  HEADROOM_CHECK(a.size() == b.size());
  const auto pairs = [](int64_t n) {
    return static_cast<double>(n) * static_cast<double>(n - 1) / 2;
  };
  std::map<std::pair<int32_t, int32_t>, int64_t> both;
  std::map<int32_t, int64_t> first;
  std::map<int32_t, int64_t> second;
  for (size_t i = 0; i < a.size(); ++i) {
    ++both[{a[i], b[i]}];
    ++first[a[i]];
    ++second[b[i]];
  }
  double together = 0.0;
  double in_first = 0.0;
  double in_second = 0.0;
  for (const auto& [key, count] : both) {
    together += pairs(count);
  }
  for (const auto& [key, count] : first) {
    in_first += pairs(count);
  }
  for (const auto& [key, count] : second) {
    in_second += pairs(count);
  }
  const double all = pairs(static_cast<int64_t>(a.size()));
  const double expected = all > 0.0 ? in_first * in_second / all : 0.0;
  const double most = (in_first + in_second) / 2;
  return most == expected ? 1'000'000
                          : std::llround((together - expected) / (most - expected) * kPpm);
}

}  // namespace headroom::profiler
