// KvCache with a small random model on the reference backend: receipts, reservations, decode
// eviction, and pages that come back.
#include "engine/kv/kv_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "engine/kv/prefill_plan.h"
#include "kernels/ref/ref_backend.h"
#include "tests/support/forward_driver.h"
#include "tests/support/forwarding_backend.h"
#include "tests/support/kv_fixture.h"

namespace headroom::engine {
namespace {

using ::headroom::testing::DrivenSequence;
using ::headroom::testing::ForwardDriver;
using ::headroom::testing::KvFixture;
using ::headroom::testing::KvFixtureOptions;
using ::headroom::testing::MakeKvSpec;
using ::headroom::testing::RandomTokens;
using ::testing::ElementsAre;

DrivenSequence MakeSequence(const KvPolicySpec& spec, int32_t num_prompt, int32_t num_decode,
                            int32_t chunk = 32) {
  DrivenSequence sequence;
  sequence.prompt = RandomTokens(num_prompt, 48, 3);
  sequence.feed = RandomTokens(num_decode, 48, 4);
  sequence.spec = spec;
  sequence.chunk = chunk;
  return sequence;
}

std::vector<KvPolicySpec> AllSpecs() {
  return {MakeKvSpec("full", 1'000'000, 1'000'000),
          MakeKvSpec("full", 1'000'000, 300'000),
          MakeKvSpec("streaming", 200'000, 1'000'000),
          MakeKvSpec("streaming", 200'000, 1'000'000, KvDecode::kTyped),
          MakeKvSpec("fastkv", 200'000, 1'000'000),
          MakeKvSpec("fastkv", 100'000, 400'000),
          MakeKvSpec("fastkv", 600'000, 400'000),
          MakeKvSpec("ragged", 1'000'000, 1'000'000),
          MakeKvSpec("ragged", 1'000'000, 500'000)};
}

TEST(KvCacheTest, TheReceiptCountsWhatIsHeld) {
  KvFixture fixture{KvFixtureOptions()};
  ForwardDriver driver(fixture.model(), fixture.cache());
  DrivenSequence sequence = MakeSequence(MakeKvSpec("fastkv", 100'000, 400'000), 205, 5);
  driver.Open(sequence);
  driver.Run({&sequence});
  const KvReceipt& receipt = fixture.cache().receipt(sequence.handle);
  EXPECT_EQ(receipt.policy, "fastkv");
  EXPECT_EQ(receipt.retention_ppm, 100'000);
  EXPECT_EQ(receipt.tsp_ppm, 400'000);
  EXPECT_EQ(receipt.prompt_tokens, 205);
  EXPECT_EQ(receipt.propagated_tokens, 82);
  EXPECT_EQ(receipt.entries, 3 * 2 * 20);  // generated tokens do not count
  EXPECT_EQ(receipt.entries_full, 3 * 2 * 205);
  EXPECT_EQ(receipt.bytes, 3 * 2 * 20 * 2 * 8 * 4);
  EXPECT_EQ(receipt.bytes_full, 3 * 2 * 205 * 2 * 8 * 4);
  EXPECT_EQ(receipt.pages, 3 * 2 * 2);
  // The clock moves a millisecond a look: one for each layer and one for the rows' choice.
  EXPECT_DOUBLE_EQ(receipt.compress_ms, 4.0);
  EXPECT_TRUE(receipt.reasons.empty());
}

TEST(KvCacheTest, TheReceiptSaysWhyMoreWasKept) {
  KvFixture fixture{KvFixtureOptions()};
  ForwardDriver driver(fixture.model(), fixture.cache());
  DrivenSequence sequence = MakeSequence(MakeKvSpec("fastkv", 10'000, 1'000'000), 100, 0);
  driver.Open(sequence);
  driver.Prefill(sequence);
  EXPECT_THAT(fixture.cache().receipt(sequence.handle).reasons, ElementsAre("floor"));
  EXPECT_EQ(fixture.cache().receipt(sequence.handle).entries, 3 * 2 * 6);
  driver.Close(sequence);

  DrivenSequence brief = MakeSequence(MakeKvSpec("fastkv", 10'000, 1'000'000), 100, 0);
  brief.spec.min_prompt = 101;
  driver.Open(brief);
  driver.Prefill(brief);
  EXPECT_THAT(fixture.cache().receipt(brief.handle).reasons, ElementsAre("short_prompt"));
  EXPECT_EQ(fixture.cache().receipt(brief.handle).retention_ppm, kPpm);
  EXPECT_EQ(fixture.cache().receipt(brief.handle).entries, 3 * 2 * 100);
}

TEST(KvCacheTest, StreamingKeepsSinksAndRecentPositions) {
  KvFixture fixture{KvFixtureOptions()};
  ForwardDriver driver(fixture.model(), fixture.cache());
  DrivenSequence sequence = MakeSequence(MakeKvSpec("streaming", 100'000, 1'000'000), 100, 0);
  driver.Open(sequence);
  driver.Prefill(sequence);
  for (const auto& layer : driver.Kept(sequence)) {
    for (const std::vector<int32_t>& head : layer) {
      EXPECT_THAT(head, ElementsAre(0, 1, 92, 93, 94, 95, 96, 97, 98, 99));
    }
  }
}

TEST(KvCacheTest, TypedStreamingHoldsEveryHeadToItsBudgetPlusAPage) {
  KvFixture fixture{KvFixtureOptions()};
  ForwardDriver driver(fixture.model(), fixture.cache());
  DrivenSequence sequence =
      MakeSequence(MakeKvSpec("streaming", 200'000, 1'000'000, KvDecode::kTyped), 100, 150);
  driver.Open(sequence);
  driver.Run({&sequence});
  int32_t longest = 0;
  for (size_t step = 0; step < sequence.kept.size(); ++step) {
    for (const auto& layer : sequence.kept[step]) {
      for (const std::vector<int32_t>& head : layer) {
        const auto length = static_cast<int32_t>(head.size());
        longest = std::max(longest, length);
        ASSERT_LE(length, 20 + 16);
        ASSERT_GE(length, 20);
        // Two sinks, then the most recent without a gap.
        EXPECT_EQ(head[1], 1);
        EXPECT_EQ(head.back(), 99 + static_cast<int32_t>(step));
        EXPECT_EQ(head.back() - head[2], length - 3);
      }
    }
  }
  EXPECT_EQ(longest, 36);
}

// Remembers what every call of WindowScores was asked for.
class WindowScoresRecorder final : public ::headroom::testing::ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  struct Call {
    std::vector<int32_t> visible;
    int32_t num_columns = 0;
    int32_t num_slots = 0;
    kernels::PoolKind pool = kernels::PoolKind::kMax;
    int32_t pool_width = 0;
  };
  void WindowScores(const kernels::WindowScoresParams& params) override {
    calls.push_back({.visible = {params.visible, params.visible + params.num_window_rows},
                     .num_columns = params.num_columns,
                     .num_slots = params.heads[0].num_slots,
                     .pool = params.pool,
                     .pool_width = params.pool_width});
    ForwardingBackend::WindowScores(params);
  }
  std::vector<Call> calls;
};

TEST(KvCacheTest, EveryWindowRowSeesItselfAndTheWindowIsNotScored) {
  auto backend = std::make_unique<WindowScoresRecorder>(kernels::CreateRefBackend());
  WindowScoresRecorder& recorder = *backend;
  KvFixtureOptions options;
  KvFixture fixture(::headroom::testing::MakeTinyModel(options.shape), options, std::move(backend));
  ForwardDriver driver(fixture.model(), fixture.cache());
  DrivenSequence sequence = MakeSequence(MakeKvSpec("fastkv", 200'000, 400'000), 100, 0, 3);
  sequence.spec.pool = kernels::PoolKind::kAvg;
  sequence.spec.pool_width = 5;
  sequence.content_end = 98;  // two template rows: a window of six
  driver.Open(sequence);
  driver.Prefill(sequence);
  // Layer 0, layer 1 (T: scored once, for its own slots and for the rows), layer 2 on 40 rows.
  ASSERT_EQ(recorder.calls.size(), 3u);
  for (size_t layer = 0; layer < 3; ++layer) {
    const WindowScoresRecorder::Call& call = recorder.calls[layer];
    const int32_t num_slots = layer < 2 ? 100 : 40;
    EXPECT_EQ(call.num_slots, num_slots);
    EXPECT_EQ(call.num_columns, num_slots - 6);
    EXPECT_THAT(call.visible, ElementsAre(num_slots - 5, num_slots - 4, num_slots - 3,
                                          num_slots - 2, num_slots - 1, num_slots));
    EXPECT_EQ(call.pool, kernels::PoolKind::kAvg);
    EXPECT_EQ(call.pool_width, 5);
  }
}

TEST(KvCacheTest, ClosingAtAnyMomentReturnsEveryPage) {
  for (const KvPolicySpec& spec : AllSpecs()) {
    KvFixture fixture{KvFixtureOptions()};
    ForwardDriver driver(fixture.model(), fixture.cache());
    for (int32_t steps = 0;; ++steps) {
      DrivenSequence sequence = MakeSequence(spec, 60, 3, 16);
      driver.Open(sequence);
      for (int32_t i = 0; i < steps && !sequence.done(); ++i) {
        driver.Step({&sequence});
      }
      const bool done = sequence.done();
      driver.Close(sequence);
      ASSERT_EQ(fixture.cache().pool().num_free(), fixture.cache().pool().num_pages());
      ASSERT_EQ(fixture.cache().num_sequences(), 0);
      if (done) {
        break;
      }
    }
  }
}

KvFootprint FootprintOf(KvFixture& fixture, const DrivenSequence& sequence) {
  const auto num_tokens = static_cast<int32_t>(sequence.prompt.size());
  return fixture.policies()
      .Find(sequence.spec.policy)
      ->Footprint(sequence.spec, fixture.shape(),
                  {.num_tokens = num_tokens, .content_end = num_tokens},
                  static_cast<int32_t>(sequence.feed.size()));
}

int64_t PeakPages(const KvPolicySpec& spec, int32_t num_prompt, int32_t num_decode) {
  KvFixture fixture{KvFixtureOptions()};
  const KvFootprint footprint = FootprintOf(fixture, MakeSequence(spec, num_prompt, num_decode));
  return std::max(footprint.prefill_peak_pages, footprint.steady_pages);
}

void RunInPool(const KvPolicySpec& spec, int32_t num_prompt, int32_t num_decode, int32_t chunk,
               int64_t num_pages) {
  KvFixtureOptions options;
  options.num_pages = static_cast<int32_t>(num_pages);
  KvFixture fixture(options);
  ForwardDriver driver(fixture.model(), fixture.cache());
  DrivenSequence sequence = MakeSequence(spec, num_prompt, num_decode, chunk);
  driver.Open(sequence);
  driver.Run({&sequence});
  driver.Close(sequence);
}

TEST(KvCacheTest, APoolOfTheFootprintIsEnoughHoweverThePromptIsCut) {
  for (const KvPolicySpec& spec : AllSpecs()) {
    for (const int32_t num_prompt : {1, 16, 17, 33, 100}) {
      for (const int32_t chunk : {1, 16, 100}) {
        RunInPool(spec, num_prompt, 40, chunk, PeakPages(spec, num_prompt, 40));
      }
    }
  }
}

TEST(KvCacheDeathTest, OnePageLessThanTheFootprintIsNotEnough) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const KvPolicySpec& spec :
       {MakeKvSpec("fastkv", 200'000, 400'000), MakeKvSpec("full", 1'000'000, 1'000'000)}) {
    EXPECT_DEATH(RunInPool(spec, 100, 40, 1, PeakPages(spec, 100, 40) - 1), "page >= 0");
  }
}

TEST(KvCacheTest, TheSteadyFootprintIsWhatDecodeHolds) {
  for (const KvPolicySpec& spec : AllSpecs()) {
    KvFixture fixture{KvFixtureOptions()};
    ForwardDriver driver(fixture.model(), fixture.cache());
    DrivenSequence sequence = MakeSequence(spec, 90, 50);
    driver.Open(sequence);
    driver.Run({&sequence});
    const int64_t steady = FootprintOf(fixture, sequence).steady_pages;
    if (spec.decode == KvDecode::kGrow) {
      EXPECT_EQ(fixture.cache().pages_held(sequence.handle), steady) << spec.policy;
    } else {
      EXPECT_LE(fixture.cache().pages_held(sequence.handle), steady);
    }
  }
}

TEST(KvCacheTest, InvariantsNoticeAPageWithTooManyReferences) {
  KvFixture fixture{KvFixtureOptions()};
  ForwardDriver driver(fixture.model(), fixture.cache());
  DrivenSequence sequence = MakeSequence(MakeKvSpec("full", 1'000'000, 1'000'000), 20, 0);
  driver.Open(sequence);
  driver.Prefill(sequence);
  ASSERT_TRUE(fixture.cache().CheckInvariants().ok());
  const int32_t page = fixture.cache().Snapshot(sequence.handle, 0, 0).pages.front();
  auto& pool = const_cast<PagePool&>(fixture.cache().pool());
  pool.AddReference(page);
  EXPECT_FALSE(fixture.cache().CheckInvariants().ok());
  pool.Release(page);
}

TEST(KvCacheTest, RefusesATspLayerOutsideTheModel) {
  KvFixture fixture{KvFixtureOptions()};
  KvCacheConfig config;
  config.num_layers = 3;
  config.hidden_size = 24;
  config.tsp_layer = 3;
  config.num_pages = 4;
  config.geometry = {.num_kv_heads = 2, .group_size = 2, .head_dim = 8};
  const headroom::testing::TickingClock clock;
  const auto cache = KvCache::Create(config, fixture.backend(), fixture.policies(), clock);
  ASSERT_FALSE(cache.ok());
  EXPECT_EQ(StatusMessage(cache.status()), "tsp_layer: got 3, wanted 0 to 2");
}

}  // namespace
}  // namespace headroom::engine
