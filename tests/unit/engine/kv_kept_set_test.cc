// Which slots and rows stay, from the queries and keys themselves: the definition in doubles, with
// no kernels, buffers or executor in between.
//
// Per query head: softmax over every key, summed over the window's rows, pooled along the columns
// outside the window; then the group's sum. Highest pooled score, then the score before pooling,
// then the lower position; sinks and window always.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "tests/support/forward_driver.h"
#include "tests/support/kv_fixture.h"

namespace headroom::engine {
namespace {

using ::headroom::testing::DrivenSequence;
using ::headroom::testing::ForwardDriver;
using ::headroom::testing::KvFixture;
using ::headroom::testing::KvFixtureOptions;
using ::headroom::testing::MakeKvSpec;
using ::headroom::testing::RandomTokens;
using models::RowSegment;
using Column = std::vector<double>;  // [columns]

struct Scores {
  Column pooled;
  Column raw;
};

Column Pool(const Column& sums, const KvPolicySpec& spec) {
  const auto count = static_cast<int64_t>(sums.size());
  const int64_t half = spec.pool_width / 2;
  Column pooled;
  for (int64_t i = 0; i < count; ++i) {
    double best = -std::numeric_limits<double>::infinity();
    double sum = 0.0;
    for (int64_t j = std::max<int64_t>(0, i - half); j <= std::min(count - 1, i + half); ++j) {
      best = std::max(best, sums[static_cast<size_t>(j)]);
      sum += sums[static_cast<size_t>(j)];
    }
    pooled.push_back(spec.pool == kernels::PoolKind::kMax ? best : sum / spec.pool_width);
  }
  return pooled;
}

// `num_kept` of positions.size() slots, ascending, as positions.
std::vector<int32_t> Select(const std::vector<int32_t>& positions, const Scores& scores,
                            int32_t num_sinks, size_t num_kept) {
  std::vector<size_t> order;  // what is not protected, best first
  for (size_t i = static_cast<size_t>(num_sinks); i < scores.raw.size(); ++i) {
    order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (scores.pooled[a] != scores.pooled[b]) {
      return scores.pooled[a] > scores.pooled[b];
    }
    return scores.raw[a] != scores.raw[b] ? scores.raw[a] > scores.raw[b] : a < b;
  });
  const size_t num_protected = positions.size() - order.size();
  order.resize(num_kept > num_protected ? num_kept - num_protected : 0);
  std::vector<int32_t> kept;
  for (size_t i = 0; i < positions.size(); ++i) {
    const bool is_protected = i < static_cast<size_t>(num_sinks) || i >= scores.raw.size();
    if (is_protected || std::find(order.begin(), order.end(), i) != order.end()) {
      kept.push_back(positions[i]);
    }
  }
  return kept;
}

// Forwards to the cache, and works out from what passes by what the cache should keep.
class DefinitionStore final : public models::KvStore {
 public:
  DefinitionStore(KvFixture& fixture, const DrivenSequence& sequence)
      : fixture_(fixture), cache_(fixture.cache()), sequence_(sequence) {}

  std::map<int32_t, std::vector<std::vector<int32_t>>> kept;  // layer -> [kv head] positions
  std::vector<int32_t> rows;                                  // that go on above the TSP layer

  const kernels::KvArena& arena() const override { return cache_.arena(); }
  void Append(const RowSegment& segment, int32_t layer, const int32_t* positions,
              int64_t* dst_slots) override {
    cache_.Append(segment, layer, positions, dst_slots);
  }
  const kernels::KvHeadView* View(const RowSegment& segment, int32_t layer,
                                  const int32_t* positions, int32_t* visible) override {
    return cache_.View(segment, layer, positions, visible);
  }
  void CaptureQueries(const RowSegment& segment, int32_t layer, const int32_t* positions,
                      const float* queries, int64_t stride) override {
    for (int32_t row = 0; row < segment.num_rows; ++row) {
      const float* begin = queries + row * stride;
      queries_[layer][positions[row]].assign(begin, begin + fixture_.loaded().config.query_width());
    }
    cache_.CaptureQueries(segment, layer, positions, queries, stride);
  }
  void StashRows(const RowSegment& segment, const int32_t* positions, const float* stashed,
                 int64_t stride) override {
    cache_.StashRows(segment, positions, stashed, stride);
  }
  void LoadStash(const RowSegment& segment, const int32_t* positions, float* stashed,
                 int64_t stride) override {
    cache_.LoadStash(segment, positions, stashed, stride);
  }
  void FinishLayer(const RowSegment& segment, int32_t layer) override {
    if (!kept.contains(layer)) {  // the TSP layer finishes twice: scored first, compacted later
      Define(layer, segment.kv_tail && layer == segment.layer_end);
    }
    cache_.FinishLayer(segment, layer);
  }

 private:
  void Define(int32_t layer, bool selects_rows) {
    const KvPolicySpec& spec = sequence_.spec;
    const auto num_prompt = static_cast<int64_t>(sequence_.prompt.size());
    std::vector<int32_t> positions;
    Scores all_heads;
    for (int32_t head = 0; head < arena().geometry.num_kv_heads; ++head) {
      positions = cache_.Snapshot(sequence_.handle, layer, head).positions;
      const Scores scores = ScoreHead(layer, head, positions);
      const size_t budget = static_cast<size_t>(spec.retention_ppm * num_prompt / 1'000'000);
      kept[layer].push_back(
          Select(positions, scores, spec.sink_tokens, std::min(budget, positions.size())));
      all_heads.pooled.resize(scores.pooled.size());
      all_heads.raw.resize(scores.raw.size());
      for (size_t i = 0; i < scores.raw.size(); ++i) {
        all_heads.pooled[i] += scores.pooled[i];
        all_heads.raw[i] += scores.raw[i];
      }
    }
    if (selects_rows) {
      rows = Select(positions, all_heads, spec.sink_tokens,
                    static_cast<size_t>(spec.tsp_ppm * num_prompt / 1'000'000));
    }
  }

  std::vector<std::vector<float>> Keys(int32_t layer, int32_t head) const {
    const HeadSnapshot snapshot = cache_.Snapshot(sequence_.handle, layer, head);
    std::vector<std::vector<float>> keys;
    std::vector<float> value(static_cast<size_t>(arena().geometry.head_dim));
    for (size_t slot = 0; slot < snapshot.positions.size(); ++slot) {
      keys.emplace_back(value.size());
      const int64_t page = snapshot.pages[slot / kernels::kPageSize];
      fixture_.backend().ReadKvSlot(
          arena(), page * kernels::kPageSize + static_cast<int64_t>(slot) % kernels::kPageSize,
          keys.back().data(), value.data());
    }
    return keys;
  }

  Scores ScoreHead(int32_t layer, int32_t kv_head, const std::vector<int32_t>& positions) {
    const auto num_prompt = static_cast<int32_t>(sequence_.prompt.size());
    const int32_t content_end = sequence_.content_end < 0 ? num_prompt : sequence_.content_end;
    const auto first_of_window =
        std::lower_bound(positions.begin(), positions.end(), content_end - sequence_.spec.window);
    const size_t num_columns = static_cast<size_t>(first_of_window - positions.begin());
    const std::vector<std::vector<float>> keys = Keys(layer, kv_head);
    Scores scores{Column(num_columns), Column(num_columns)};
    for (int32_t g = 0; g < arena().geometry.group_size; ++g) {
      Column sums(num_columns);
      for (size_t row = num_columns; row < positions.size(); ++row) {
        AddRow(queries_[layer].at(positions[row]), kv_head * arena().geometry.group_size + g, keys,
               row + 1, sums);
      }
      const Column pooled = Pool(sums, sequence_.spec);
      for (size_t i = 0; i < num_columns; ++i) {
        scores.pooled[i] += pooled[i];
        scores.raw[i] += sums[i];
      }
    }
    return scores;
  }

  // Adds the probabilities that one query gives the first `visible` keys.
  void AddRow(const std::vector<float>& query, int32_t query_head,
              const std::vector<std::vector<float>>& keys, size_t visible, Column& sums) const {
    const double scale = double{fixture_.model().attention_scale()};
    const float* q = query.data() + int64_t{query_head} * arena().geometry.head_dim;
    Column weights;
    for (size_t slot = 0; slot < visible; ++slot) {
      weights.push_back(
          std::exp(scale * std::inner_product(keys[slot].begin(), keys[slot].end(), q, 0.0)));
    }
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (size_t column = 0; column < sums.size(); ++column) {
      sums[column] += weights[column] / total;
    }
  }

  KvFixture& fixture_;
  KvCache& cache_;
  const DrivenSequence& sequence_;
  std::map<int32_t, std::map<int32_t, std::vector<float>>> queries_;  // layer -> position
};

struct KeptSetCase {
  const char* name;
  int64_t retention_ppm;
  int64_t tsp_ppm;
  int32_t content_end;
  int32_t chunk;
  kernels::PoolKind pool;
  int32_t pool_width;
};

class KvKeptSetTest : public ::testing::TestWithParam<KeptSetCase> {};

TEST_P(KvKeptSetTest, FollowsFromTheDefinition) {
  const KeptSetCase& of = GetParam();
  KvFixtureOptions options;
  options.shape.num_heads = 6;
  KvFixture fixture(options);
  for (uint64_t seed = 1; seed <= 6; ++seed) {  // the second and later ones find used buffers
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    DrivenSequence sequence;
    sequence.prompt = RandomTokens(90, fixture.loaded().config.vocab_size, seed);
    sequence.spec = MakeKvSpec("fastkv", of.retention_ppm, of.tsp_ppm);
    sequence.spec.pool = of.pool;
    sequence.spec.pool_width = of.pool_width;
    sequence.content_end = of.content_end;
    sequence.chunk = of.chunk;
    DefinitionStore store(fixture, sequence);
    ForwardDriver driver(fixture.model(), fixture.cache(), store);
    driver.Open(sequence);
    driver.Prefill(sequence);
    for (int32_t layer = 0; layer < options.shape.num_layers; ++layer) {
      EXPECT_EQ(driver.Kept(sequence)[static_cast<size_t>(layer)], store.kept.at(layer))
          << "layer " << layer;
    }
    if (of.tsp_ppm < kPpm) {
      const auto rows = fixture.cache().phase_rows(sequence.handle, 1);
      EXPECT_EQ(std::vector<int32_t>(rows.begin(), rows.end()), store.rows);
    }
    driver.Close(sequence);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Budgets, KvKeptSetTest,
    ::testing::Values(KeptSetCase{"Retention", 250'000, kPpm, -1, 16, kernels::PoolKind::kMax, 7},
                      KeptSetCase{"Both", 200'000, 500'000, -1, 3, kernels::PoolKind::kMax, 7},
                      KeptSetCase{"Suffix", 300'000, 400'000, 85, 7, kernels::PoolKind::kMax, 5},
                      KeptSetCase{"Average", 250'000, 500'000, -1, 90, kernels::PoolKind::kAvg, 5},
                      KeptSetCase{"Single", 250'000, 500'000, -1, 64, kernels::PoolKind::kMax, 1}),
    [](const auto& of) { return std::string(of.param.name); });

}  // namespace
}  // namespace headroom::engine
