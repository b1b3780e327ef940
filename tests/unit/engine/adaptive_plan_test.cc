// The split of a pool between heads, against a slow independent account of the rules: entry lists
// that are written out and cut, and a search over all ways that the rules allow.
#include "engine/kv/policies/adaptive_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <tuple>
#include <vector>

#include "base/philox.h"
#include "engine/kv/budget.h"

namespace headroom::engine {
namespace {

int64_t Sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

// Every item written out and sorted by rank.
std::vector<int64_t> TakeSlowly(const std::vector<Claim>& claims, int64_t total) {
  struct Item {
    long double rank;
    size_t claim;
    int64_t k;
  };
  std::vector<Item> items;
  for (size_t i = 0; i < claims.size(); ++i) {
    for (int64_t k = 1; k <= claims[i].limit; ++k) {
      items.push_back(
          {static_cast<long double>(k) / static_cast<long double>(claims[i].weight), i, k});
    }
  }
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    return std::tie(a.rank, a.claim, a.k) < std::tie(b.rank, b.claim, b.k);
  });
  std::vector<int64_t> counts(claims.size(), 0);
  for (int64_t i = 0; i < total; ++i) {
    ++counts[items[static_cast<size_t>(i)].claim];
  }
  return counts;
}

TEST(TakeInOrderTest, EqualsTheListWrittenOut) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Philox random(seed, 1);
    std::vector<Claim> claims;
    int64_t most = 0;
    for (uint64_t i = 0; i < 1 + seed % 9; ++i) {
      const int64_t limit = static_cast<int64_t>(random.Uniform(2 * i) * 30);
      const int64_t scale = seed % 3 == 0 ? 3'000'000 : 40;
      claims.push_back({.weight = 1 + static_cast<int64_t>(random.Uniform(2 * i + 1) *
                                                           static_cast<double>(scale)),
                        .limit = limit});
      most += limit;
    }
    for (int64_t total = 0; total <= most; ++total) {
      ASSERT_EQ(TakeInOrder(claims, total), TakeSlowly(claims, total))
          << "seed " << seed << ", total " << total;
    }
  }
}

TEST(TakeInOrderTest, TakesHugeListsWithoutOverflow) {
  const std::vector<Claim> claims = {{.weight = 1, .limit = 2'000'000'000},
                                     {.weight = 2'000'000'000, .limit = 2'000'000'000},
                                     {.weight = 3, .limit = 10}};
  EXPECT_EQ(TakeInOrder(claims, 2'000'000'004), (std::vector<int64_t>{1, 2'000'000'000, 3}));
  EXPECT_EQ(TakeInOrder(claims, 4'000'000'010),
            (std::vector<int64_t>{2'000'000'000, 2'000'000'000, 10}));
}

AdaptiveInput RandomInput(uint64_t seed) {
  const Philox random(seed, 2);
  uint64_t draw = 0;
  const auto below = [&](int64_t limit) {
    return static_cast<int64_t>(random.Uniform(draw++) * static_cast<double>(limit));
  };
  AdaptiveInput input;
  const int64_t num_layers = 1 + below(4);
  const int64_t num_heads = 1 + below(3);
  const int64_t floor = below(4);
  const int64_t lead = below(4);
  const int64_t types = below(4);  // all, or some are missing
  for (int32_t layer = 0; layer < num_layers; ++layer) {
    const int64_t room = below(12);
    for (int64_t h = 0; h < num_heads; ++h) {
      AdaptiveHead head;
      head.layer = layer;
      const int64_t type = types == 0 ? below(3) : types == 1 ? 1 + below(2) : types == 2 ? 0 : 2;
      head.elastic = type > 0;
      head.dense = type == 2;
      head.room = room;
      head.quota = head.elastic ? 0 : below(room + 1);
      head.lead = std::min(lead, room - head.quota);
      head.floor = head.elastic ? std::min(floor, room - head.lead) : 0;
      head.content = below(room + 1);
      head.fill_order = below(4);
      head.demand = below(9);
      input.heads.push_back(head);
    }
  }
  input.local_share_ppm = below(3) == 0 ? 0 : below(500'001);
  input.layers_by_demand = below(2) == 0;
  input.content_pool = below(3) == 0 ? 0 : below(60);
  int64_t pool = 0;
  for (int64_t i = 0, count = 1 + below(3); i < count; ++i) {
    pool += below(40);
    input.points.push_back({.pool = pool, .dense_share_ppm = below(1'000'001)});
  }
  return input;
}

int64_t TotalRoom(const AdaptiveInput& input) {
  int64_t room = 0;
  for (const AdaptiveHead& head : input.heads) {
    room += head.room;
  }
  return room;
}

// Entries of each head, and what is contested in each layer.
struct Given {
  std::vector<int64_t> heads;
  std::vector<int64_t> quotas;
  std::vector<int64_t> layers;
  std::vector<uint8_t> content_first = {};
  int64_t dense = 0;  // what all dense heads got by their order
  bool operator==(const Given&) const = default;
};

Given GivenBy(const AdaptiveSplit& split) {
  Given given = {.heads = split.own, .quotas = split.quota, .layers = split.contested};
  for (size_t i = 0; i < given.heads.size(); ++i) {
    given.heads[i] += split.quota[i];
  }
  given.content_first = split.content_first;
  return given;
}

// The rules one entry after the other, for one dense share: each rule takes what it may while the
// pool lasts.
Given SplitSlowly(const AdaptiveInput& input) {
  const std::vector<AdaptiveHead>& heads = input.heads;
  Given given = {.heads = std::vector<int64_t>(heads.size(), 0),
                 .quotas = std::vector<int64_t>(heads.size(), 0),
                 .layers = std::vector<int64_t>(static_cast<size_t>(heads.back().layer) + 1, 0)};
  const int64_t pool = std::clamp<int64_t>(input.pool, 0, TotalRoom(input));
  int64_t left = pool;

  // Leads, one entry a round: a third of what is beyond three times their sum, and what nobody else
  // can hold.
  int64_t all_leads = 0;
  int64_t dense_room = 0;
  for (const AdaptiveHead& head : heads) {
    all_leads += head.lead;
    dense_room += head.dense ? head.room - head.lead : 0;
  }
  std::vector<int64_t> leads(heads.size(), 0);
  for (int64_t round = 1; round <= 4; ++round) {
    for (size_t i = 0; i < heads.size(); ++i) {
      const int64_t next = Sum(leads) + 1;
      const bool is_due =
          3 * next <= pool - 3 * all_leads || next <= pool - (TotalRoom(input) - all_leads);
      if (round <= heads[i].lead && is_due) {
        ++leads[i];
        ++given.heads[i];
        --left;
      }
    }
  }
  const int64_t shared = left;

  // Quotas: one item after the other in the order of ranks.
  const auto next_quota = [&]() {
    size_t best = heads.size();
    for (size_t i = 0; i < heads.size(); ++i) {
      if (heads[i].elastic || given.quotas[i] == heads[i].quota) {
        continue;
      }
      if (best == heads.size() ||
          (given.quotas[i] + 1) * heads[best].quota < (given.quotas[best] + 1) * heads[i].quota) {
        best = i;
      }
    }
    return best;
  };
  const auto give_quota = [&](size_t i) {
    ++given.quotas[i];
    ++given.heads[i];
    --left;
  };
  for (size_t i = next_quota(); i < heads.size() && left > 0 &&
                                (Sum(given.quotas) + 1) <= input.local_share_ppm * shared / kPpm;
       i = next_quota()) {
    give_quota(i);
  }

  // The elastic pool is what elastic heads can hold beside leads, at most.
  int64_t elastic_room = 0;
  for (const AdaptiveHead& head : heads) {
    elastic_room += head.elastic ? head.room - head.lead : 0;
  }
  int64_t elastic = std::min(left, elastic_room);
  left -= elastic;

  // Dense heads in their order, up to the share: first the content of those that the share of the
  // content pool reaches, then whole.
  int64_t content = 0;
  if (input.content_pool > 0) {
    AdaptiveInput alone = input;
    alone.pool = input.content_pool;
    alone.content_pool = 0;
    content = SplitSlowly(alone).dense;
  }
  std::vector<int64_t> first(heads.size(), 0);  // entries of the content pool
  given.content_first.assign(heads.size(), 0);
  const auto next_dense = [&](auto&& has_room) {
    size_t best = heads.size();
    for (size_t i = 0; i < heads.size(); ++i) {
      if (heads[i].dense && has_room(i) &&
          (best == heads.size() || heads[i].fill_order < heads[best].fill_order)) {
        best = i;
      }
    }
    return best;
  };
  for (int64_t left_of_it = content; left_of_it > 0; --left_of_it) {
    const size_t i = next_dense([&](size_t head) {
      return given.content_first[head] == 0 || first[head] < heads[head].content;
    });
    if (i == heads.size()) {
      break;
    }
    given.content_first[i] = 1;
    if (heads[i].content == 0) {
      ++left_of_it;
      continue;
    }
    ++first[i];
  }
  int64_t dense = std::min(input.points.front().dense_share_ppm * elastic / kPpm, dense_room);
  for (const bool whole : {false, true}) {
    while (dense > 0) {
      const size_t i = next_dense([&](size_t head) {
        return given.heads[head] <
               (whole ? heads[head].room : std::min(heads[head].room, leads[head] + first[head]));
      });
      if (i == heads.size()) {
        break;
      }
      ++given.heads[i];
      ++given.dense;
      --elastic;
      --dense;
    }
  }

  // Floors, one entry a round.
  const std::vector<int64_t> before = given.heads;
  for (int64_t round = 1; round <= 8; ++round) {
    for (size_t i = 0; i < heads.size() && elastic > 0; ++i) {
      if (heads[i].elastic && before[i] + round <= leads[i] + heads[i].floor) {
        ++given.heads[i];
        --elastic;
      }
    }
  }

  // The rest to the layers in the order of ranks, as far as their elastic heads can hold it.
  const auto next_layer = [&]() {
    size_t best = given.layers.size();
    int64_t best_weight = 0;
    for (size_t layer = 0; layer < given.layers.size(); ++layer) {
      int64_t weight = 0;
      int64_t room = 0;
      for (size_t i = 0; i < heads.size(); ++i) {
        if (heads[i].elastic && static_cast<size_t>(heads[i].layer) == layer) {
          weight += input.layers_by_demand ? std::max<int64_t>(1, heads[i].demand) : 1;
          room += heads[i].room - given.heads[i];
        }
      }
      if (given.layers[layer] < room &&
          (best == given.layers.size() ||
           (given.layers[layer] + 1) * best_weight < (given.layers[best] + 1) * weight)) {
        best = layer;
        best_weight = weight;
      }
    }
    return best;
  };
  for (; elastic > 0; --elastic) {
    ++given.layers[next_layer()];
  }
  // What elastic heads cannot hold: the quotas, then all fixed heads in turn.
  for (size_t i = next_quota(); i < heads.size() && left > 0; i = next_quota()) {
    give_quota(i);
  }
  for (int64_t round = 1; left > 0; ++round) {
    for (size_t i = 0; i < heads.size() && left > 0; ++i) {
      if (!heads[i].elastic && heads[i].quota + heads[i].lead + round <= heads[i].room) {
        ++given.heads[i];
        --left;
      }
    }
  }
  return given;
}

TEST(SplitPoolTest, EqualsTheRulesCarriedOutEntryByEntry) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    AdaptiveInput input = RandomInput(seed);
    input.points.resize(1);
    for (input.pool = -3; input.pool <= TotalRoom(input) + 2; ++input.pool) {
      const AdaptiveSplit split = SplitPool(input);
      const Given wanted = SplitSlowly(input);
      ASSERT_EQ(GivenBy(split).heads, wanted.heads) << "seed " << seed << ", pool " << input.pool;
      ASSERT_EQ(split.quota, wanted.quotas) << "seed " << seed << ", pool " << input.pool;
      ASSERT_EQ(split.contested, wanted.layers) << "seed " << seed << ", pool " << input.pool;
      ASSERT_EQ(split.content_first, wanted.content_first)
          << "seed " << seed << ", pool " << input.pool;
    }
  }
}

// What each layer's heads have and may win.
std::vector<int64_t> LayerTotals(const AdaptiveInput& input, const Given& given) {
  std::vector<int64_t> totals = given.layers;
  for (size_t i = 0; i < input.heads.size(); ++i) {
    totals[static_cast<size_t>(input.heads[i].layer)] += given.heads[i];
  }
  return totals;
}

// Room of a layer's elastic heads that is not theirs yet.
int64_t OpenRoom(const AdaptiveInput& input, const Given& given, size_t layer) {
  int64_t room = 0;
  for (size_t i = 0; i < input.heads.size(); ++i) {
    if (input.heads[i].elastic && static_cast<size_t>(input.heads[i].layer) == layer) {
      room += input.heads[i].room - given.heads[i];
    }
  }
  return room;
}

TEST(SplitPoolTest, SpendsThePoolExactlyAndNeverShrinksAPart) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    AdaptiveInput input = RandomInput(seed);
    Given last;
    for (input.pool = -3; input.pool <= TotalRoom(input) + 2; ++input.pool) {
      const AdaptiveSplit split = SplitPool(input);
      const Given given = GivenBy(split);
      ASSERT_EQ(Sum(given.heads) + Sum(given.layers),
                std::clamp<int64_t>(input.pool, 0, TotalRoom(input)));
      ASSERT_EQ(split.overran, input.pool < 0);
      for (size_t i = 0; i < input.heads.size(); ++i) {
        ASSERT_LE(given.heads[i], input.heads[i].room);
        ASSERT_TRUE(last.heads.empty() ||
                    (given.heads[i] >= last.heads[i] && given.quotas[i] >= last.quotas[i]))
            << "seed " << seed << ", pool " << input.pool << ", head " << i;
      }
      for (size_t layer = 0; layer < given.layers.size(); ++layer) {
        // A layer has less to win only where it keeps everything already.
        const int64_t open = OpenRoom(input, given, layer);
        ASSERT_LE(given.layers[layer], open);
        ASSERT_TRUE(last.layers.empty() || given.layers[layer] >= last.layers[layer] ||
                    given.layers[layer] == open)
            << "seed " << seed << ", pool " << input.pool << ", layer " << layer;
        ASSERT_TRUE(last.layers.empty() ||
                    LayerTotals(input, given)[layer] >= LayerTotals(input, last)[layer])
            << "seed " << seed << ", pool " << input.pool << ", layer " << layer;
      }
      last = given;
    }
  }
}

TEST(SplitPoolTest, GivesDenseHeadsTheShareOfEveryPoint) {
  AdaptiveInput input;
  for (int32_t layer = 0; layer < 4; ++layer) {
    input.heads.push_back({.layer = layer, .elastic = true, .dense = true, .room = 1000});
    input.heads.push_back({.layer = layer, .elastic = true, .room = 1000});
  }
  input.points = {{.pool = 800, .dense_share_ppm = 250'000},
                  {.pool = 1600, .dense_share_ppm = 500'000},
                  {.pool = 4000, .dense_share_ppm = 400'000}};
  const auto dense = [&input](int64_t pool) {
    input.pool = pool;
    const AdaptiveSplit split = SplitPool(input);
    return split.own[0] + split.own[2] + split.own[4] + split.own[6];
  };
  EXPECT_EQ(dense(400), 100);
  EXPECT_EQ(dense(800), 200);
  EXPECT_EQ(dense(1200), 500);  // half way from 200 to 800
  EXPECT_EQ(dense(1600), 800);
  EXPECT_EQ(dense(4000), 1600);
  EXPECT_EQ(dense(5000), 2000);
  // Three points that no nested sets could follow are cut: from 100 to 200 entries, at most 100
  // more can be dense.
  input.points = {{.pool = 100, .dense_share_ppm = 0}, {.pool = 200, .dense_share_ppm = 1'000'000}};
  EXPECT_EQ(dense(200), 100);
}

TEST(SplitPoolTest, FillsDenseHeadsWholeInTheirOrder) {
  AdaptiveInput input;
  input.heads = {{.layer = 0, .elastic = true, .dense = true, .room = 50, .fill_order = 7},
                 {.layer = 0, .elastic = true, .room = 50},
                 {.layer = 1, .elastic = true, .dense = true, .room = 50, .fill_order = 3},
                 {.layer = 1, .elastic = true, .dense = true, .room = 50, .fill_order = 7}};
  input.points = {{.pool = 0, .dense_share_ppm = 800'000}};
  input.pool = 100;
  EXPECT_EQ(SplitPool(input).own, (std::vector<int64_t>{30, 0, 50, 0}));
  EXPECT_EQ(SplitPool(input).contested, (std::vector<int64_t>{10, 10}));  // two heads in each
}

// Leads of 4 in four heads: 16 entries, none up to a pool of 48, whole at one of 96, and at the
// end.
TEST(SplitPoolTest, LeadsComeInTurnBeforeTheDenseShare) {
  AdaptiveInput input;
  input.heads = {
      {.layer = 0, .elastic = true, .dense = true, .room = 50, .lead = 4, .fill_order = 1},
      {.layer = 0, .elastic = true, .dense = true, .room = 50, .lead = 4, .fill_order = 2},
      {.layer = 1, .elastic = true, .room = 50, .lead = 4},
      {.layer = 1, .room = 50, .lead = 4, .quota = 10}};
  input.points = {{.pool = 0, .dense_share_ppm = 1'000'000}};
  const auto own = [&input](int64_t pool) {
    input.pool = pool;
    return SplitPool(input).own;
  };
  EXPECT_EQ(own(48), (std::vector<int64_t>{48, 0, 0, 0}));
  EXPECT_EQ(own(50), (std::vector<int64_t>{50, 0, 0, 0}));
  EXPECT_EQ(own(51), (std::vector<int64_t>{50, 1, 0, 0}));
  EXPECT_EQ(own(63), (std::vector<int64_t>{50, 10 + 1, 1, 1}));
  EXPECT_EQ(own(96), (std::vector<int64_t>{50, 34 + 4, 4, 4}));
  EXPECT_EQ(own(100), (std::vector<int64_t>{50, 42, 4, 4}));
  // Where heads hold hardly more than their leads, these are whole at the end alone.
  for (AdaptiveHead& head : input.heads) {
    head.room = 5;
    head.quota = 0;
  }
  input.pool = 20;
  EXPECT_EQ(SplitPool(input).lead, (std::vector<int64_t>{4, 4, 4, 4}));
}

// Where nothing is punctuation content is all there is, and heads are whole one after the other
// although leads are not: of a pool of 63 each has one (above).
TEST(SplitPoolTest, ContentOfTheWholeRoomFillsHeadsLikeWholeOnes) {
  AdaptiveInput input;
  input.heads = {{.layer = 0, .elastic = true, .dense = true, .room = 50, .lead = 4, .content = 50},
                 {.layer = 0, .elastic = true, .dense = true, .room = 50, .lead = 4, .content = 50},
                 {.layer = 1, .elastic = true, .room = 50, .lead = 4},
                 {.layer = 1, .room = 50, .lead = 4, .quota = 10}};
  input.points = {{.pool = 0, .dense_share_ppm = 1'000'000}};
  for (const int64_t pool : {40, 63, 80, 96, 120}) {
    input.pool = pool;
    input.content_pool = 0;
    const std::vector<int64_t> whole = SplitPool(input).own;
    input.content_pool = 80;
    EXPECT_EQ(SplitPool(input).own, whole) << pool;
  }
}

// 80 dense entries at the content pool: the content of the first two heads and half of the third's.
TEST(SplitPoolTest, FillsTheContentOfDenseHeadsUpToTheContentPoolThenWhole) {
  AdaptiveInput input;
  for (int32_t layer = 0; layer < 4; ++layer) {
    input.heads.push_back({.layer = layer,
                           .elastic = true,
                           .dense = true,
                           .room = 50,
                           .content = 32,
                           .fill_order = layer});
  }
  input.points = {{.pool = 0, .dense_share_ppm = 800'000}};
  input.content_pool = 100;
  const auto own = [&input](int64_t pool) {
    input.pool = pool;
    const AdaptiveSplit split = SplitPool(input);
    EXPECT_EQ(split.content_first, (std::vector<uint8_t>{1, 1, 1, 0})) << pool;
    return split.own;
  };
  EXPECT_EQ(own(50), (std::vector<int64_t>{32, 8, 0, 0}));
  EXPECT_EQ(own(100), (std::vector<int64_t>{32, 32, 16, 0}));
  EXPECT_EQ(own(125), (std::vector<int64_t>{50, 34, 16, 0}));
  EXPECT_EQ(own(150), (std::vector<int64_t>{50, 50, 20, 0}));
  EXPECT_EQ(own(200), (std::vector<int64_t>{50, 50, 50, 10}));
  input.content_pool = 0;
  input.pool = 100;
  EXPECT_EQ(SplitPool(input).own, (std::vector<int64_t>{50, 30, 0, 0}));
  EXPECT_EQ(SplitPool(input).content_first, (std::vector<uint8_t>{0, 0, 0, 0}));
}

}  // namespace
}  // namespace headroom::engine
