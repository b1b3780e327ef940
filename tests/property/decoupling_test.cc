// The two budgets are decoupled, by counters: over a 3 x 3 grid of tau x rho (rho <= tau) kept
// entries depend on rho alone, rows that run and attend on tau alone, exactly; rows that enter the
// TSP layer are the same bits with TSP on and off.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <vector>

#include "tests/support/forward_driver.h"
#include "tests/support/kv_fixture.h"

namespace headroom::testing {
namespace {

// Counts rows per layer and remembers what entered one layer.
class RecordingStore final : public models::KvStore {
 public:
  struct Record {
    std::vector<int64_t> stored_rows;               // [layer], rows whose K and V were projected
    std::vector<int64_t> attention_rows;            // [layer], rows that ran the layer whole
    std::vector<int64_t> attended_slots;            // [layer], summed over rows and KV heads
    std::map<int32_t, std::vector<float>> watched;  // position -> query, key, value of one layer
  };

  RecordingStore(engine::KvCache& cache, int32_t num_layers, int32_t watched_layer,
                 int32_t watched_width)
      : cache_(cache), watched_layer_(watched_layer), watched_width_(watched_width) {
    const auto size = static_cast<size_t>(num_layers);
    record_ = {
        std::vector<int64_t>(size), std::vector<int64_t>(size), std::vector<int64_t>(size), {}};
  }

  const Record& record() const { return record_; }

  const kernels::KvArena& arena() const override { return cache_.arena(); }
  void Append(const models::RowSegment& segment, int32_t layer, const int32_t* positions,
              int64_t* dst_slots) override {
    record_.stored_rows[static_cast<size_t>(layer)] += segment.num_rows;
    cache_.Append(segment, layer, positions, dst_slots);
  }
  const kernels::KvHeadView* View(const models::RowSegment& segment, int32_t layer,
                                  const int32_t* positions, int32_t* visible) override {
    const kernels::KvHeadView* views = cache_.View(segment, layer, positions, visible);
    record_.attention_rows[static_cast<size_t>(layer)] += segment.num_rows;
    const int32_t count = segment.num_rows * arena().geometry.num_kv_heads;
    for (int32_t i = 0; i < count; ++i) {
      record_.attended_slots[static_cast<size_t>(layer)] += visible[i];
    }
    return views;
  }
  void CaptureQueries(const models::RowSegment& segment, int32_t layer, const int32_t* positions,
                      const float* queries, int64_t stride) override {
    if (layer == watched_layer_) {
      for (int32_t row = 0; row < segment.num_rows; ++row) {
        const float* begin = queries + row * stride;
        record_.watched[positions[row]].assign(begin, begin + watched_width_);
      }
    }
    cache_.CaptureQueries(segment, layer, positions, queries, stride);
  }
  void StashRows(const models::RowSegment& segment, const int32_t* positions, const float* rows,
                 int64_t stride) override {
    cache_.StashRows(segment, positions, rows, stride);
  }
  void LoadStash(const models::RowSegment& segment, const int32_t* positions, float* rows,
                 int64_t stride) override {
    cache_.LoadStash(segment, positions, rows, stride);
  }
  void FinishLayer(const models::RowSegment& segment, int32_t layer) override {
    cache_.FinishLayer(segment, layer);
  }

 private:
  engine::KvCache& cache_;
  const int32_t watched_layer_;
  const int32_t watched_width_;
  Record record_;
};

constexpr int32_t kNumPrompt = 200;
constexpr int32_t kTspLayer = 1;

struct Measured {
  RecordingStore::Record rows;
  std::vector<std::vector<int64_t>> entries;  // [layer][kv head]
  engine::KvReceipt receipt;
};

Measured Measure(KvFixture& fixture, const engine::KvPolicySpec& spec) {
  const models::ModelConfig& config = fixture.loaded().config;
  RecordingStore store(fixture.cache(), config.num_hidden_layers, kTspLayer,
                       config.query_width() + 2 * config.kv_width());
  ForwardDriver driver(fixture.model(), fixture.cache(), store);
  DrivenSequence sequence;
  sequence.prompt = RandomTokens(kNumPrompt, config.vocab_size, 9);
  sequence.spec = spec;
  sequence.chunk = 64;
  driver.Open(sequence);
  driver.Run({&sequence});
  Measured measured;
  measured.rows = store.record();
  for (const auto& layer : driver.Kept(sequence)) {
    measured.entries.emplace_back();
    for (const auto& head : layer) {
      measured.entries.back().push_back(static_cast<int64_t>(head.size()));
    }
  }
  measured.receipt = fixture.cache().receipt(sequence.handle);
  driver.Close(sequence);
  return measured;
}

KvFixtureOptions Options() {
  KvFixtureOptions options;
  options.shape.num_layers = 4;
  options.tsp_layer = kTspLayer;
  return options;
}

TEST(DecouplingTest, EntriesDependOnRhoAloneAndWorkOnTauAlone) {
  KvFixture fixture(Options());
  const std::vector<int64_t> ratios = {200'000, 400'000, 1'000'000};   // of tau
  const std::vector<int64_t> retentions = {50'000, 100'000, 200'000};  // of rho, rho <= tau
  std::map<int64_t, std::vector<std::vector<int64_t>>> entries;        // by rho
  std::map<int64_t, Measured> work;                                    // by tau
  for (const int64_t tau : ratios) {
    for (const int64_t rho : retentions) {
      const Measured measured = Measure(fixture, MakeKvSpec("fastkv", rho, tau));
      const auto [kept, first_of_rho] = entries.emplace(rho, measured.entries);
      EXPECT_EQ(measured.entries, kept->second) << "rho " << rho << " tau " << tau;
      EXPECT_EQ(measured.receipt.entries, 4 * 2 * (rho * kNumPrompt / 1'000'000));
      const auto [done, first_of_tau] = work.emplace(tau, measured);
      EXPECT_EQ(measured.rows.stored_rows, done->second.rows.stored_rows) << "rho " << rho;
      EXPECT_EQ(measured.rows.attention_rows, done->second.rows.attention_rows) << "rho " << rho;
      EXPECT_EQ(measured.rows.attended_slots, done->second.rows.attended_slots) << "rho " << rho;
      const int64_t above = tau * kNumPrompt / 1'000'000;
      EXPECT_EQ(measured.receipt.propagated_tokens, above);
      EXPECT_EQ(measured.rows.stored_rows,
                (std::vector<int64_t>{kNumPrompt, kNumPrompt, above, above}));
      EXPECT_EQ(measured.rows.attention_rows,
                (std::vector<int64_t>{kNumPrompt, above, above, above}));
    }
  }
  EXPECT_EQ(entries.size(), 3u);
  EXPECT_NE(work.at(200'000).rows.attended_slots, work.at(400'000).rows.attended_slots);
}

TEST(DecouplingTest, RowsThatEnterTheTspLayerAreTheSameBits) {
  KvFixture fixture(Options());
  const Measured off = Measure(fixture, MakeKvSpec("full", 1'000'000, 1'000'000));
  ASSERT_EQ(off.rows.watched.size(), static_cast<size_t>(kNumPrompt));
  for (const char* policy : {"full", "fastkv"}) {
    const Measured on = Measure(fixture, MakeKvSpec(policy, 1'000'000, 300'000));
    EXPECT_EQ(on.rows.watched, off.rows.watched) << policy;
  }
}

}  // namespace
}  // namespace headroom::testing
