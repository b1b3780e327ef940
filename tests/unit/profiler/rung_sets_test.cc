// Kept masses of every rung from bucket tables against explicit masks over whole maps.
#include "profiler/rung_sets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/philox.h"
#include "kernels/ops.h"

namespace headroom::profiler {
namespace {

constexpr int64_t kUnit = kernels::kColumnUnit;

// Probabilities of every row of a causal map, in units: [rows][row + 1].
using Map = std::vector<std::vector<int64_t>>;

Map RandomMap(int32_t num_tokens, uint64_t seed) {
  Map map;
  for (int32_t row = 0; row < num_tokens; ++row) {
    std::vector<double> p;
    for (int32_t slot = 0; slot <= row; ++slot) {
      const auto index = static_cast<uint64_t>(row) * 10'000 + static_cast<uint64_t>(slot);
      p.push_back(std::exp(8.0 * Philox(seed).Uniform(index)));
    }
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    map.emplace_back();
    for (const double x : p) {
      map.back().push_back(std::llrint(x / sum * static_cast<double>(kUnit)));
    }
  }
  return map;
}

std::vector<int64_t> TableOf(const Map& map, const RungSets& sets, int32_t eval_begin) {
  std::vector<int64_t> table(sets.table_size());
  for (size_t row = static_cast<size_t>(eval_begin); row < map.size(); ++row) {
    for (size_t slot = 0; slot <= row; ++slot) {
      size_t bucket = 0;
      for (const int32_t edge : sets.edges()) {
        bucket += row - slot >= static_cast<size_t>(edge) ? 1 : 0;
      }
      table[bucket * map.size() + slot] += map[row][slot];
    }
  }
  return table;
}

// The columns that a rung keeps for every row, found the slow way.
std::vector<uint8_t> KeptColumns(const Rung& rung, const std::vector<SlotKind>& kinds,
                                 const std::vector<int64_t>& sums, int32_t heavy_end) {
  std::vector<uint8_t> kept(kinds.size());
  for (size_t slot = 0; slot < kinds.size(); ++slot) {
    kept[slot] = kinds[slot] == SlotKind::kSink || kinds[slot] == SlotKind::kSpecial ||
                 (rung.punctuation && kinds[slot] == SlotKind::kPunctuation);
  }
  for (int64_t left = rung.heavy_ppm * std::ssize(kinds) / 1'000'000; left > 0; --left) {
    int64_t best = -1;
    size_t at = kinds.size();
    for (size_t slot = 0; slot < static_cast<size_t>(heavy_end); ++slot) {
      if (kept[slot] == 0 && sums[slot] > best) {
        best = sums[slot];
        at = slot;
      }
    }
    if (at == kinds.size()) {
      break;
    }
    kept[at] = 1;
  }
  return kept;
}

int64_t WindowOf(const Rung& rung, int64_t num_tokens, int64_t recent) {
  return std::max({recent, int64_t{rung.window}, rung.window_ppm * num_tokens / 1'000'000});
}

double ExplicitMass(const Map& map, const Rung& rung, const std::vector<uint8_t>& columns,
                    int32_t eval_begin, int32_t recent) {
  double mass = 0.0;
  for (size_t row = static_cast<size_t>(eval_begin); row < map.size(); ++row) {
    for (size_t slot = 0; slot <= row; ++slot) {
      const bool near = static_cast<int64_t>(row - slot) < WindowOf(rung, std::ssize(map), recent);
      if (rung.all || columns[slot] != 0 || near) {
        mass += static_cast<double>(map[row][slot]) / static_cast<double>(kUnit);
      }
    }
  }
  return mass / static_cast<double>(std::ssize(map) - eval_begin);
}

enum class Text { kMixed, kAllPunctuation, kPlain };

std::vector<SlotKind> MakeKinds(int32_t num_tokens, Text text) {
  std::vector<SlotKind> kinds(static_cast<size_t>(num_tokens), SlotKind::kOther);
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (text == Text::kAllPunctuation || (text == Text::kMixed && i % 9 == 5)) {
      kinds[i] = SlotKind::kPunctuation;
    }
    if (text == Text::kMixed && (i == 20 || i == 21)) {
      kinds[i] = SlotKind::kSpecial;
    }
    if (text != Text::kPlain && i < 4) {
      kinds[i] = SlotKind::kSink;
    }
  }
  return kinds;
}

struct Prompt {
  int32_t num_tokens;
  Text text;
  int32_t recent;
};

class RungSetsTest : public ::testing::TestWithParam<Prompt> {};

TEST_P(RungSetsTest, MassesEqualExplicitMasksForEveryRung) {
  const auto [n, text, recent] = GetParam();
  const int32_t eval_begin = 3 * n / 4;
  const Map map = RandomMap(n, 3);
  std::vector<int64_t> sums(static_cast<size_t>(n));
  for (size_t row = 0; row < static_cast<size_t>(eval_begin); ++row) {
    for (size_t slot = 0; slot <= row; ++slot) {
      sums[slot] += map[row][slot];
    }
  }
  const std::vector<SlotKind> kinds = MakeKinds(n, text);
  for (const Ladder& ladder : {DefaultLadder(300'000), PaperLadder(250'000)}) {
    RungSets sets(ladder, kinds, recent, eval_begin);
    sets.RankColumns(sums);
    std::vector<int64_t> table = TableOf(map, sets, eval_begin);
    sets.Accumulate(table);
    std::vector<int32_t> masses(sets.num_rungs());
    sets.Masses(table, n - eval_begin, masses.data());
    for (size_t r = 0; r < ladder.rungs.size(); ++r) {
      const std::vector<uint8_t> columns = KeptColumns(ladder.rungs[r], kinds, sums, eval_begin);
      // Half a ppm of rounding, and the addends' own.
      EXPECT_NEAR(masses[r], 1e6 * ExplicitMass(map, ladder.rungs[r], columns, eval_begin, recent),
                  0.51)
          << ladder.rungs[r].name;
      for (int32_t slot = 0; slot < n; ++slot) {
        const bool keeps = columns[static_cast<size_t>(slot)] != 0 || ladder.rungs[r].all ||
                           n - 1 - slot < WindowOf(ladder.rungs[r], n, recent);
        ASSERT_EQ(sets.RungsThatKeep(slot, n - 1 - slot) >> r & 1, keeps ? 1u : 0u)
            << ladder.rungs[r].name << " slot " << slot;
      }
    }
    const std::array<int32_t, 5> classes = sets.ClassMasses(table, n - eval_begin);
    double expected[5] = {};
    for (size_t row = static_cast<size_t>(eval_begin); row < map.size(); ++row) {
      for (size_t slot = 0; slot <= row; ++slot) {
        const bool is_rest =
            kinds[slot] == SlotKind::kOther && static_cast<int32_t>(row - slot) >= recent;
        expected[is_rest ? 4 : static_cast<size_t>(kinds[slot])] +=
            1e6 * static_cast<double>(map[row][slot]) / static_cast<double>(kUnit) /
            (n - eval_begin);
      }
    }
    EXPECT_EQ(std::accumulate(classes.begin(), classes.end(), 0), 1'000'000);
    for (size_t c = 0; c < 5; ++c) {
      EXPECT_NEAR(classes[c], expected[c], 3.0);  // four roundings end in the rest
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, RungSetsTest,
                         ::testing::Values(Prompt{1, Text::kPlain, 64}, Prompt{5, Text::kMixed, 64},
                                           Prompt{63, Text::kAllPunctuation, 8},
                                           Prompt{97, Text::kMixed, 64},
                                           Prompt{301, Text::kPlain, 64},
                                           Prompt{301, Text::kAllPunctuation, 64},
                                           Prompt{512, Text::kMixed, 64}));

// A uniform head with a window of r * N: the mean over all rows is r * (1 - ln r), though the last
// row keeps r; late rows say what decode will see.
TEST(RungSetsUniformTest, LateRowsShowWhatAllRowsHide) {
  const int32_t n = 1200;
  Map map;
  for (int32_t row = 0; row < n; ++row) {
    map.emplace_back(static_cast<size_t>(row + 1), kUnit / (row + 1));
  }
  const Ladder ladder = {.name = "test", .rungs = {{.name = "R2:0.3", .window_ppm = 300'000}}};
  const auto mass = [&](int32_t eval_begin) {
    RungSets sets(ladder, std::vector<SlotKind>(static_cast<size_t>(n), SlotKind::kOther), 1, n);
    std::vector<int64_t> table = TableOf(map, sets, eval_begin);
    sets.Accumulate(table);
    int32_t ppm = 0;
    sets.Masses(table, n - eval_begin, &ppm);
    return ppm / 1e6;
  };
  // Sums of 1 / i against their integrals.
  EXPECT_NEAR(mass(0), 0.3 * (1.0 - std::log(0.3)), 1e-3);
  EXPECT_NEAR(mass(n - 1), 0.3, 1e-6);
  EXPECT_NEAR(mass(3 * n / 4), 0.3 * std::log(4.0 / 3.0) * 4.0, 1e-3);
}

// Nothing but noise: columns chosen on the rows they are measured on look far better than they are.
TEST(RungSetsNoiseTest, HeldOutRowsSeeThroughHeavyColumnsOfNoise) {
  const int32_t n = 256;
  const int32_t eval_begin = 248;
  const Map map = RandomMap(n, 9);
  const Ladder ladder = {.name = "test", .rungs = {{.name = "R3:0.1", .heavy_ppm = 100'000}}};
  const auto mass = [&](int32_t select_begin, int32_t select_end) {
    std::vector<int64_t> sums(static_cast<size_t>(n));
    for (int32_t row = select_begin; row < select_end; ++row) {
      for (size_t slot = 0; slot < map[static_cast<size_t>(row)].size(); ++slot) {
        sums[slot] += map[static_cast<size_t>(row)][slot];
      }
    }
    RungSets sets(ladder, std::vector<SlotKind>(static_cast<size_t>(n), SlotKind::kOther), 1,
                  select_end);
    sets.RankColumns(sums);
    std::vector<int64_t> table = TableOf(map, sets, eval_begin);
    sets.Accumulate(table);
    int32_t ppm = 0;
    sets.Masses(table, n - eval_begin, &ppm);
    return ppm / 1e6;
  };
  EXPECT_GT(mass(eval_begin, n), 1.5 * mass(eval_begin - 8, eval_begin));
  EXPECT_NEAR(mass(eval_begin - 8, eval_begin), 0.1, 0.06);  // a tenth of the columns
}

}  // namespace
}  // namespace headroom::profiler
