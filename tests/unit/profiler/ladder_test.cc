#include "profiler/ladder.h"

#include <gtest/gtest.h>

#include <set>

namespace headroom::profiler {
namespace {

using engine::HeadType;

// R0 < R1 < R3 < R4 < R5 and R0 < R2 < R2p < R4 as sets; so are their entries at every length.
TEST(LadderTest, EntriesOfNestedRungsNeverShrink) {
  for (const int64_t tokens : {70, 256, 1000, 4096, 16384}) {
    const auto entries = [&](const Rung& rung) {
      return RungEntries(rung, tokens, 5, tokens / 8, 64);
    };
    const Ladder ladder = DefaultLadder(300'000);
    for (const Rung& small : ladder.rungs) {
      for (const Rung& large : ladder.rungs) {
        const bool is_nested =
            large.all || (!small.all && (large.punctuation || !small.punctuation) &&
                          large.window >= small.window && large.window_ppm >= small.window_ppm &&
                          large.heavy_ppm >= small.heavy_ppm);
        if (is_nested) {
          EXPECT_LE(entries(small), entries(large))
              << small.name << " in " << large.name << " at " << tokens;
        }
      }
    }
  }
}

TEST(LadderTest, CountsWhatARungKeeps) {
  const int64_t tokens = 1000;
  const struct {
    Rung rung;
    int64_t entries;
  } cases[] = {
      {{.name = "R0"}, 64 + 5},
      {{.name = "R1", .punctuation = true}, 64 + 5 + 93},  // 100 marks, 936 of 1,000 outside
      {{.name = "R2:256", .window = 256}, 256 + 5},
      {{.name = "R2:0.3", .window_ppm = 300'000}, 300 + 5},
      {{.name = "R3:0.05", .punctuation = true, .heavy_ppm = 50'000}, 64 + 5 + 93 + 50},
      {{.name = "R2:2000", .window = 2000}, 1000},
      {{.name = "R5", .all = true}, 1000},
  };
  for (const auto& each : cases) {
    EXPECT_EQ(RungEntries(each.rung, tokens, 5, 100, 64), each.entries) << each.rung.name;
  }
}

TEST(LadderTest, NamesAreUniqueAndFoundByTheMapsName) {
  for (const char* name : {"default/1", "paper/1"}) {
    const auto ladder = LadderByName(name, 250'000);
    ASSERT_TRUE(ladder.ok());
    EXPECT_EQ(ladder->name, name);
    std::set<std::string> names;
    for (const Rung& rung : ladder->rungs) {
      EXPECT_TRUE(names.insert(rung.name).second) << rung.name;
    }
    EXPECT_TRUE(ladder->rungs.back().all);
  }
  EXPECT_FALSE(LadderByName("default/2", 250'000).ok());
}

TEST(LadderTest, ThePaperSearchesFiveNestedSets) {
  const Ladder ladder = PaperLadder(300'000);
  std::vector<HeadType> types;
  for (const Rung& rung : ladder.rungs) {
    types.push_back(TypeOfRung(rung));
  }
  EXPECT_EQ(types, (std::vector<HeadType>{HeadType::kSpecial, HeadType::kPunct, HeadType::kHeavy,
                                          HeadType::kHeavy, HeadType::kDense}));
  EXPECT_EQ(ladder.rungs[3].window_ppm, 300'000);
  EXPECT_EQ(ladder.rungs[3].heavy_ppm, 300'000);
}

TEST(LadderTest, TheCheapestPassingRungWinsAndTiesGoToTheEarlier) {
  const std::vector<int64_t> entries = {69, 162, 261, 162, 1000, 1000};
  const auto choose = [&](std::vector<uint8_t> passes) {
    return CheapestRung(passes, entries, 1000);
  };
  EXPECT_EQ(choose({0, 1, 1, 1, 1, 1}), 1);
  EXPECT_EQ(choose({0, 0, 1, 1, 1, 1}), 3);
  EXPECT_EQ(choose({1, 1, 1, 1, 1, 1}), 0);
  // Full passes by definition, and a rung that keeps everything anyway is full.
  EXPECT_EQ(choose({0, 0, 0, 0, 0, 0}), 5);
  EXPECT_EQ(choose({0, 0, 0, 0, 1, 0}), 5);
  const std::vector<int64_t> nearly = {899, 900, 1000};
  EXPECT_EQ(CheapestRung(std::vector<uint8_t>{0, 1, 1}, nearly, 1000), 2);
  EXPECT_EQ(CheapestRung(std::vector<uint8_t>{1, 1, 1}, nearly, 1000), 0);
}

// What SetRung says a rung keeps of N tokens is what RungEntries counts, but for marks inside the
// window, which the budget counts twice.
TEST(LadderTest, BudgetsAgreeWithEntriesAtTheReferenceLength) {
  const ReferenceLength reference{.num_tokens = 4000, .num_special = 5, .num_punctuation = 0};
  for (const Rung& rung : DefaultLadder(300'000).rungs) {
    engine::HeadEntry head;
    SetRung(rung, reference, 64, &head);
    const int64_t budget = head.budget_tokens + head.budget_ppm * 4000 / 1'000'000;
    EXPECT_EQ(std::min<int64_t>(budget, 4000), RungEntries(rung, 4000, 5, 0, 64)) << rung.name;
  }
}

}  // namespace
}  // namespace headroom::profiler
