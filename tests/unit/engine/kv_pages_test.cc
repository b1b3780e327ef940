// PagePool and KvHead: who owns a page, where a slot lies, what moves.
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "base/philox.h"
#include "engine/kv/kv_head.h"
#include "engine/kv/page_pool.h"

namespace headroom::engine {
namespace {

using kernels::kPageSize;
using kernels::KvMove;

TEST(PagePoolTest, HandsOutTheLastReleasedPageFirst) {
  PagePool pool(3);
  EXPECT_EQ(pool.Allocate(), 0);
  EXPECT_EQ(pool.Allocate(), 1);
  pool.Release(0);
  EXPECT_EQ(pool.Allocate(), 0);
  EXPECT_EQ(pool.Allocate(), 2);
  EXPECT_EQ(pool.Allocate(), -1);
}

TEST(PagePoolTest, APageIsFreeWhenItsLastReferenceGoes) {
  PagePool pool(1);
  const int32_t page = pool.Allocate();
  pool.AddReference(page);
  pool.Release(page);
  EXPECT_EQ(pool.references(page), 1);
  EXPECT_EQ(pool.num_free(), 0);
  pool.Release(page);
  EXPECT_EQ(pool.num_free(), 1);
}

TEST(PagePoolDeathTest, ReleasingAFreePageAborts) {
  PagePool pool(2);
  const int32_t page = pool.Allocate();
  pool.Release(page);
  EXPECT_DEATH(pool.Release(page), "count > 0");
  EXPECT_DEATH(pool.AddReference(page), "count > 0");
}

// A head with the contents of its slots: slot -> position written there.
class TrackedHead {
 public:
  explicit TrackedHead(PagePool& pool) : pool_(pool) {}

  void Append(int32_t position) {
    std::vector<KvMove> moves;
    const int64_t slot = head.Append(pool_, position, moves);
    Apply(moves);
    contents[slot] = position;
  }
  void Compact(const std::vector<int32_t>& kept) {
    std::vector<KvMove> moves;
    std::vector<int32_t> released;
    head.Compact(pool_, kept, moves, released);
    Finish(moves, released);
  }
  void Evict(int32_t sink_slots) {
    std::vector<KvMove> moves;
    std::vector<int32_t> released;
    head.EvictRun(pool_, sink_slots, moves, released);
    Finish(moves, released);
  }
  // Whether each slot holds what its position says, and the list is as long as it has to be.
  void Check() const {
    EXPECT_EQ(head.pages().size(),
              static_cast<size_t>((head.length() + kPageSize - 1) / kPageSize));
    for (int32_t i = 0; i < head.length(); ++i) {
      ASSERT_TRUE(contents.contains(head.Slot(i))) << "slot " << i;
      EXPECT_EQ(contents.at(head.Slot(i)), head.positions()[static_cast<size_t>(i)]);
    }
  }

  KvHead head;
  std::map<int64_t, int32_t> contents;
  int64_t num_moves = 0;

 private:
  void Apply(const std::vector<KvMove>& moves) {
    for (const KvMove& move : moves) {
      ASSERT_TRUE(contents.contains(move.src_slot));
      EXPECT_EQ(pool_.references(static_cast<int32_t>(move.dst_slot / kPageSize)), 1)
          << "a shared page is written";
      contents[move.dst_slot] = contents[move.src_slot];
    }
    num_moves += static_cast<int64_t>(moves.size());
  }
  void Finish(const std::vector<KvMove>& moves, const std::vector<int32_t>& released) {
    Apply(moves);
    for (const int32_t page : released) {
      pool_.Release(page);
    }
  }

  PagePool& pool_;
};

TEST(KvHeadTest, VisibleSlotsAreThoseAtPositionsUpToTheRow) {
  PagePool pool(4);
  TrackedHead tracked(pool);
  for (const int32_t position : {0, 3, 4, 9}) {
    tracked.Append(position);
  }
  const std::vector<int32_t> wanted = {1, 1, 1, 2, 3, 3, 3, 3, 3, 4, 4};
  for (int32_t position = 0; position < static_cast<int32_t>(wanted.size()); ++position) {
    EXPECT_EQ(tracked.head.VisibleAt(position), wanted[static_cast<size_t>(position)]);
  }
}

TEST(KvHeadTest, CompactionKeepsTheChosenSlotsInOrderAndReturnsTheOldPages) {
  PagePool pool(16);
  TrackedHead tracked(pool);
  for (int32_t position = 0; position < 50; ++position) {
    tracked.Append(position * 2);
  }
  EXPECT_EQ(pool.num_free(), 12);
  tracked.Compact({0, 1, 15, 16, 17, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 49});
  tracked.Check();
  EXPECT_EQ(tracked.head.length(), 17);
  EXPECT_EQ(tracked.head.positions().back(), 98);
  EXPECT_EQ(pool.num_free(), 14);
  tracked.Append(100);
  tracked.Check();
  tracked.head.Clear(pool);
  EXPECT_EQ(pool.num_free(), 16);
}

class EvictOldestPageTest : public ::testing::TestWithParam<int32_t> {};

TEST_P(EvictOldestPageTest, DropsSixteenSlotsBehindTheSinksWithFewCopies) {
  const int32_t sinks = GetParam();
  for (int32_t length = sinks + kPageSize; length < sinks + 5 * kPageSize; ++length) {
    PagePool pool(16);
    TrackedHead tracked(pool);
    std::vector<int32_t> wanted;
    for (int32_t position = 0; position < length; ++position) {
      tracked.Append(position);
      if (position < sinks || position >= sinks + kPageSize) {
        wanted.push_back(position);
      }
    }
    tracked.Evict(sinks);
    EXPECT_EQ(tracked.head.positions(), wanted);
    tracked.Check();
    EXPECT_LT(tracked.num_moves, kPageSize);
    EXPECT_EQ(pool.num_free() + static_cast<int32_t>(tracked.head.pages().size()), 16);
  }
}

INSTANTIATE_TEST_SUITE_P(Sinks, EvictOldestPageTest, ::testing::Values(0, 1, 4, 15, 16, 20, 32));

TEST(KvHeadTest, ASharedPageIsCopiedBeforeItIsWritten) {
  PagePool pool(16);
  TrackedHead tracked(pool);
  for (int32_t position = 0; position < 40; ++position) {
    tracked.Append(position);
  }
  const std::vector<int32_t> shared = tracked.head.pages();
  for (const int32_t page : shared) {
    pool.AddReference(page);
  }
  std::map<int64_t, int32_t> before = tracked.contents;
  tracked.Append(40);
  tracked.Check();
  EXPECT_NE(tracked.head.pages().back(), shared.back());
  tracked.Evict(4);
  tracked.Check();
  tracked.Compact({0, 1, 2, 20});
  tracked.Check();
  for (const int32_t page : shared) {
    EXPECT_EQ(pool.references(page), 1) << "only the other owner is left";
    for (int64_t slot = int64_t{page} * kPageSize; slot < (int64_t{page} + 1) * kPageSize; ++slot) {
      EXPECT_EQ(tracked.contents.contains(slot), before.contains(slot));
      EXPECT_EQ(tracked.contents[slot], before[slot]);
    }
    pool.Release(page);
  }
  tracked.head.Clear(pool);
  EXPECT_EQ(pool.num_free(), 16);
}

TEST(KvHeadTest, RandomWorkNeitherLeaksNorSharesAPage) {
  PagePool pool(64);
  std::vector<TrackedHead> heads(4, TrackedHead(pool));
  std::vector<int32_t> next(heads.size(), 0);
  const Philox random(11);
  for (uint64_t step = 0; step < 3000; ++step) {
    const size_t i = static_cast<size_t>(random.Uniform(3 * step) * 4);
    const double action = random.Uniform(3 * step + 1);
    KvHead& head = heads[i].head;
    if (action < 0.9 && head.length() < 200) {
      heads[i].Append(next[i] += 1 + static_cast<int32_t>(random.Uniform(3 * step + 2) * 3));
    } else if (action < 0.95 && head.length() > 0) {
      std::vector<int32_t> kept;
      for (int32_t slot = 0; slot < head.length(); slot += 2) {
        kept.push_back(slot);
      }
      heads[i].Compact(kept);
    } else if (action < 0.99 && head.length() >= 4 + kPageSize) {
      heads[i].Evict(4);
    } else {
      head.Clear(pool);
      next[i] = 0;
    }
    heads[i].Check();
    std::set<int32_t> owned;
    size_t listed = 0;
    for (const TrackedHead& tracked : heads) {
      owned.insert(tracked.head.pages().begin(), tracked.head.pages().end());
      listed += tracked.head.pages().size();
    }
    ASSERT_EQ(owned.size(), listed);
    ASSERT_EQ(listed + static_cast<size_t>(pool.num_free()), 64u);
  }
}

}  // namespace
}  // namespace headroom::engine
