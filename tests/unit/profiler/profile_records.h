// Profiling records made by hand: the masses of query heads in closed form.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "profiler/profile_record.h"
#include "profiler/prompt_masses.h"

namespace headroom::profiler {

// A query head whose attention is a mixture: shares of late rows on special tokens, punctuation,
// tokens evenly spread over the last `reach`, and evenly over everything; in ppm, sum 1e6. The
// spread part lies outside all classes.
struct Mixture {
  int64_t special = 0;
  int64_t punct = 0;
  int64_t local = 0;
  int64_t reach = 1;
  int64_t spread() const { return 1'000'000 - special - punct - local; }
};

// Mass that the rung keeps, N tokens, w0 recent ones: windows keep the nearest part of the reach,
// heavy columns a share of what is spread evenly.
inline int32_t MixtureMass(const Mixture& mix, const Rung& rung, int64_t num_tokens,
                           int64_t recent_tokens) {
  if (rung.all) {
    return 1'000'000;
  }
  const int64_t window = std::min(num_tokens, std::max({recent_tokens, int64_t{rung.window},
                                                        rung.window_ppm * num_tokens / 1'000'000}));
  int64_t mass = mix.special + (rung.punctuation ? mix.punct : 0);
  mass += mix.local * std::min(window, mix.reach) / mix.reach;
  const int64_t columns = std::min(num_tokens, window + rung.heavy_ppm * num_tokens / 1'000'000);
  mass += mix.spread() * columns / num_tokens;
  return static_cast<int32_t>(mass);
}

// A prompt whose query head q of layer l is mixtures[l * num_query_heads + q].
inline PromptRecord MakeRecord(const HeadShape& shape, const Ladder& ladder,
                               const std::vector<Mixture>& mixtures, int32_t num_tokens,
                               const std::string& domain = "text") {
  PromptRecord record;
  record.domain = domain;
  record.num_tokens = num_tokens;
  record.num_special = 5;
  record.num_punctuation = num_tokens / 10;
  for (const Mixture& mix : mixtures) {
    for (const Rung& rung : ladder.rungs) {
      record.mass_ppm.push_back(MixtureMass(mix, rung, num_tokens, 64));
    }
    record.class_mass_ppm.push_back(
        {static_cast<int32_t>(mix.special), 0, static_cast<int32_t>(mix.punct),
         static_cast<int32_t>(mix.local), static_cast<int32_t>(mix.spread())});
  }
  record.overlap_ppm.assign(static_cast<size_t>(shape.num_layers), 500'000);
  return record;
}

}  // namespace headroom::profiler
