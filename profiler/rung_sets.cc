#include "profiler/rung_sets.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "kernels/ops.h"

namespace headroom::profiler {
namespace {

constexpr int64_t kMillion = 1'000'000;
constexpr int32_t kUnranked = std::numeric_limits<int32_t>::max();

int32_t ShareOf(int64_t ppm, int64_t num_tokens) {
  return static_cast<int32_t>(ppm * num_tokens / kMillion);
}

}  // namespace

int32_t MeanMassPpm(int64_t sum, int64_t num_rows) {
  const int64_t mean = num_rows == 0 ? 0 : sum / num_rows;
  const int64_t ppm = (mean * kMillion + kernels::kColumnUnit / 2) / kernels::kColumnUnit;
  return static_cast<int32_t>(std::clamp<int64_t>(ppm, 0, kMillion));
}

RungSets::RungSets(const Ladder& ladder, std::vector<SlotKind> kinds, int32_t recent_tokens,
                   int32_t heavy_end)
    : kinds_(std::move(kinds)), recent_tokens_(recent_tokens), heavy_end_(heavy_end) {
  HEADROOM_CHECK(!kinds_.empty() && ladder.rungs.size() <= 64 && recent_tokens >= 1);
  edges_.push_back(recent_tokens);
  for (const Rung& rung : ladder.rungs) {
    Set set;
    set.all = rung.all;
    set.punctuation = rung.punctuation;
    set.window = std::max({recent_tokens, rung.window, ShareOf(rung.window_ppm, num_tokens())});
    set.heavy = ShareOf(rung.heavy_ppm, num_tokens());
    int32_t& most = most_heavy_[set.punctuation ? 1 : 0];
    most = std::max(most, set.heavy);
    edges_.push_back(set.window);
    rungs_.push_back(set);
  }
  std::sort(edges_.begin(), edges_.end());
  edges_.erase(std::unique(edges_.begin(), edges_.end()), edges_.end());
  HEADROOM_CHECK(edges_.size() < static_cast<size_t>(kernels::kMaxBuckets));
  for (Set& set : rungs_) {
    set.bucket = BucketOf(set.window);
  }
  for (std::vector<int32_t>& ranks : ranks_) {
    ranks.assign(kinds_.size(), kUnranked);
  }
}

int32_t RungSets::BucketOf(int32_t window) const {
  return static_cast<int32_t>(std::lower_bound(edges_.begin(), edges_.end(), window) -
                              edges_.begin());
}

void RungSets::RankColumns(std::span<const int64_t> sums) {
  HEADROOM_CHECK(sums.size() == kinds_.size());
  for (const int with_punctuation : {0, 1}) {
    const int32_t most = most_heavy_[with_punctuation];
    if (most == 0) {
      continue;
    }
    std::vector<int32_t>& ranks = ranks_[with_punctuation];
    std::fill(ranks.begin(), ranks.end(), kUnranked);
    order_.clear();
    for (int32_t slot = 0; slot < std::min(heavy_end_, num_tokens()); ++slot) {
      const SlotKind kind = kinds_[static_cast<size_t>(slot)];
      if (kind == SlotKind::kOther || (kind == SlotKind::kPunctuation && with_punctuation == 0)) {
        order_.push_back(slot);
      }
    }
    const auto middle = order_.begin() + std::min<int64_t>(most, std::ssize(order_));
    std::partial_sort(order_.begin(), middle, order_.end(), [&](int32_t a, int32_t b) {
      const int64_t sum_a = sums[static_cast<size_t>(a)];
      const int64_t sum_b = sums[static_cast<size_t>(b)];
      return sum_a != sum_b ? sum_a > sum_b : a < b;
    });
    for (auto each = order_.begin(); each != middle; ++each) {
      ranks[static_cast<size_t>(*each)] = static_cast<int32_t>(each - order_.begin());
    }
  }
}

void RungSets::Accumulate(std::span<int64_t> table) const {
  HEADROOM_CHECK(table.size() == table_size());
  for (size_t i = kinds_.size(); i < table.size(); ++i) {
    table[i] += table[i - kinds_.size()];
  }
}

void RungSets::Masses(std::span<const int64_t> running, int64_t num_rows, int32_t* mass_ppm) const {
  HEADROOM_CHECK(running.size() == table_size());
  const size_t num_slots = kinds_.size();
  const int64_t* total = running.data() + edges_.size() * num_slots;
  for (size_t r = 0; r < rungs_.size(); ++r) {
    const Set& set = rungs_[r];
    if (set.all) {
      mass_ppm[r] = kMillion;
      continue;
    }
    const int64_t* near = running.data() + static_cast<size_t>(set.bucket) * num_slots;
    int64_t mass = 0;
    for (size_t slot = 0; slot < num_slots; ++slot) {
      mass += KeepsColumn(set, slot) ? total[slot] : near[slot];
    }
    mass_ppm[r] = MeanMassPpm(mass, num_rows);
  }
}

std::array<int32_t, 5> RungSets::ClassMasses(std::span<const int64_t> running,
                                             int64_t num_rows) const {
  HEADROOM_CHECK(running.size() == table_size());
  const size_t num_slots = kinds_.size();
  const int64_t* total = running.data() + edges_.size() * num_slots;
  const int64_t* recent =
      running.data() + static_cast<size_t>(BucketOf(recent_tokens_)) * num_slots;
  int64_t sums[4] = {};
  for (size_t slot = 0; slot < num_slots; ++slot) {
    const bool is_other = kinds_[slot] == SlotKind::kOther;
    sums[static_cast<size_t>(kinds_[slot])] += is_other ? recent[slot] : total[slot];
  }
  std::array<int32_t, 5> masses = {};
  int32_t rest = kMillion;
  for (size_t kind = 0; kind < 4; ++kind) {
    masses[kind] = std::min(MeanMassPpm(sums[kind], num_rows), rest);
    rest -= masses[kind];
  }
  masses[4] = rest;
  return masses;
}

RungSets::Patterns RungSets::ColumnPatterns() const {
  Patterns patterns;
  for (size_t slot = 0; slot < kinds_.size(); ++slot) {
    uint64_t kept = 0;
    for (size_t r = 0; r < rungs_.size(); ++r) {
      kept |= uint64_t{rungs_[r].all || KeepsColumn(rungs_[r], slot)} << r;
    }
    const auto found = std::find(patterns.rungs.begin(), patterns.rungs.end(), kept);
    patterns.of_slot.push_back(static_cast<uint16_t>(found - patterns.rungs.begin()));
    if (found == patterns.rungs.end()) {
      patterns.rungs.push_back(kept);
    }
  }
  return patterns;
}

void RungSets::RowMasses(const Patterns& patterns, std::span<const int64_t> probabilities,
                         int32_t* mass_ppm) const {
  HEADROOM_CHECK(!probabilities.empty() && probabilities.size() <= kinds_.size());
  // Sums by pattern of the slots inside each window, the whole row behind them.
  const size_t num_patterns = patterns.rungs.size();
  std::vector<int64_t> sums((edges_.size() + 1) * num_patterns, 0);
  size_t end = probabilities.size();
  for (size_t bucket = 0; bucket <= edges_.size(); ++bucket) {
    int64_t* inside = sums.data() + bucket * num_patterns;
    if (bucket > 0) {
      std::copy_n(inside - num_patterns, num_patterns, inside);
    }
    const size_t window =
        bucket < edges_.size() ? static_cast<size_t>(edges_[bucket]) : probabilities.size();
    const size_t begin = probabilities.size() - std::min(window, probabilities.size());
    for (size_t slot = begin; slot < end; ++slot) {
      inside[patterns.of_slot[slot]] += probabilities[slot];
    }
    end = begin;
  }
  const int64_t* whole = sums.data() + edges_.size() * num_patterns;
  for (size_t r = 0; r < rungs_.size(); ++r) {
    const int64_t* inside = sums.data() + static_cast<size_t>(rungs_[r].bucket) * num_patterns;
    int64_t mass = 0;
    for (size_t pattern = 0; pattern < num_patterns; ++pattern) {
      mass += (patterns.rungs[pattern] >> r & 1) != 0 ? whole[pattern] : inside[pattern];
    }
    mass_ppm[r] = rungs_[r].all ? static_cast<int32_t>(kMillion) : MeanMassPpm(mass, 1);
  }
}

uint64_t RungSets::RungsThatKeep(int32_t slot, int32_t distance) const {
  uint64_t kept = 0;
  for (size_t r = 0; r < rungs_.size(); ++r) {
    const Set& set = rungs_[r];
    const bool keeps =
        set.all || distance < set.window || KeepsColumn(set, static_cast<size_t>(slot));
    kept |= uint64_t{keeps} << r;
  }
  return kept;
}

}  // namespace headroom::profiler
