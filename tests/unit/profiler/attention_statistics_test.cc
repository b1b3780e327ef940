// Statistics of a prompt against whole n x n maps in doubles, computed from the model's own
// queries, keys and values.
#include "profiler/attention_statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/ref/ref_backend.h"
#include "profiler/rung_sets.h"
#include "tests/support/policy_cases.h"
#include "tests/support/tiny_model.h"
#include "tests/unit/profiler/profiled_model.h"

namespace headroom::profiler {
namespace {

// Copies everything that attention reads.
class Recorder final : public ChunkObserver {
 public:
  explicit Recorder(PromptReader& reader) : reader_(reader) {}

  struct Layer {
    std::vector<std::vector<float>> queries;         // [rows][query heads * head_dim]
    std::vector<std::vector<std::vector<float>>> k;  // [KV heads][slots][head_dim]
    std::vector<std::vector<std::vector<float>>> v;
  };
  std::vector<Layer> layers;

  void Observe(const ChunkRows& rows) override {
    layers.resize(static_cast<size_t>(reader_.num_layers()));
    Layer& layer = layers[static_cast<size_t>(rows.layer)];
    const kernels::KvGeometry& g = rows.arena.geometry;
    for (int32_t row = 0; row < rows.num_rows; ++row) {
      const float* q = rows.queries + row * rows.stride;
      layer.queries.emplace_back(q, q + reader_.num_query_heads() * g.head_dim);
    }
    if (!rows.is_last) {
      return;
    }
    const auto dim = static_cast<size_t>(g.head_dim);
    for (int32_t head = 0; head < g.num_kv_heads; ++head) {
      layer.k.emplace_back();
      layer.v.emplace_back();
      for (int32_t slot = 0; slot < rows.heads[head].num_slots; ++slot) {
        const int64_t page = rows.heads[head].pages[slot / kernels::kPageSize];
        std::vector<float> k(dim);
        std::vector<float> v(dim);
        reader_.model().backend.ReadKvSlot(
            rows.arena, page * kernels::kPageSize + slot % kernels::kPageSize, k.data(), v.data());
        layer.k.back().push_back(k);
        layer.v.back().push_back(v);
      }
    }
  }

 private:
  PromptReader& reader_;
};

// What one layer's attention is, and what statistics say of it: all by definition.
class LayerOracle {
 public:
  LayerOracle(const Recorder::Layer& layer, float scale, std::vector<SlotKind> kinds)
      : layer_(layer),
        kinds_(std::move(kinds)),
        rows_(SplitRows(static_cast<int32_t>(kinds_.size()))) {
    const size_t num_heads = layer.queries[0].size() / layer.k[0][0].size();
    group_ = num_heads / layer.k.size();
    for (size_t head = 0; head < num_heads; ++head) {
      map_.emplace_back();
      for (size_t row = 0; row < kinds_.size(); ++row) {
        map_.back().push_back(Softmax(head, row, static_cast<double>(scale)));
      }
    }
  }
  size_t num_heads() const { return map_.size(); }

  // Heavy columns: chosen by select rows, or by all of them.
  std::vector<uint8_t> Columns(size_t kv_head, const Rung& rung, bool in_sample) const {
    std::vector<double> sums(kinds_.size());
    const auto begin = static_cast<size_t>(in_sample ? 0 : rows_.select_begin);
    const size_t end = in_sample ? kinds_.size() : static_cast<size_t>(rows_.eval_begin);
    for (size_t head = kv_head * group_; head < (kv_head + 1) * group_; ++head) {
      for (size_t row = begin; row < end; ++row) {
        for (size_t slot = 0; slot <= row; ++slot) {
          sums[slot] += map_[head][row][slot];
        }
      }
    }
    std::vector<uint8_t> kept(kinds_.size());
    std::vector<size_t> order;
    for (size_t slot = 0; slot < kinds_.size(); ++slot) {
      kept[slot] = kinds_[slot] == SlotKind::kSink || kinds_[slot] == SlotKind::kSpecial ||
                   (rung.punctuation && kinds_[slot] == SlotKind::kPunctuation);
      if (kept[slot] == 0 && slot < end) {
        order.push_back(slot);
      }
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return sums[a] > sums[b]; });
    const auto count = static_cast<size_t>(rung.heavy_ppm * std::ssize(kinds_) / 1'000'000);
    for (size_t i = 0; i < std::min(count, order.size()); ++i) {
      kept[order[i]] = 1;
    }
    return kept;
  }

  bool Keeps(const Rung& rung, const std::vector<uint8_t>& columns, size_t row, size_t slot,
             int64_t recent) const {
    const int64_t window =
        std::max({recent, int64_t{rung.window}, rung.window_ppm * std::ssize(kinds_) / 1'000'000});
    return rung.all || columns[slot] != 0 || static_cast<int64_t>(row - slot) < window;
  }

  double Mass(size_t head, const Rung& rung, const std::vector<uint8_t>& columns, size_t row_begin,
              int64_t recent) const {
    double mass = 0.0;
    for (size_t row = row_begin; row < kinds_.size(); ++row) {
      for (size_t slot = 0; slot <= row; ++slot) {
        mass += Keeps(rung, columns, row, slot, recent) ? map_[head][row][slot] : 0.0;
      }
    }
    return mass / static_cast<double>(kinds_.size() - row_begin);
  }

  // What nine of ten of the last rows keep, by the neediest query head.
  double LateP10(size_t kv_head, const Rung& rung, const std::vector<uint8_t>& columns,
                 size_t num_rows, int64_t recent) const {
    std::vector<double> masses;
    for (size_t row = kinds_.size() - num_rows; row < kinds_.size(); ++row) {
      double least = 1.0;
      for (size_t head = kv_head * group_; head < (kv_head + 1) * group_; ++head) {
        double mass = 0.0;
        for (size_t slot = 0; slot <= row; ++slot) {
          mass += Keeps(rung, columns, row, slot, recent) ? map_[head][row][slot] : 0.0;
        }
        least = std::min(least, mass);
      }
      masses.push_back(least);
    }
    std::sort(masses.begin(), masses.end());
    size_t reached = 1;  // rows up to the one taken: a tenth of all or more
    while (10 * reached < num_rows) {
      ++reached;
    }
    return masses[reached - 1];
  }

  double ValueError(size_t kv_head, const Rung& rung, const std::vector<uint8_t>& columns,
                    const std::vector<size_t>& rows, int64_t recent) const {
    double worst = 0.0;
    for (size_t head = kv_head * group_; head < (kv_head + 1) * group_; ++head) {
      double sum = 0.0;
      for (const size_t row : rows) {
        sum += RowError(head, rung, columns, row, recent);
      }
      worst = std::max(worst, sum / static_cast<double>(rows.size()));
    }
    return worst;
  }

  size_t group() const { return group_; }

 private:
  std::vector<double> Softmax(size_t head, size_t row, double scale) const {
    const auto& k = layer_.k[head / group_];
    const size_t dim = k[0].size();
    std::vector<double> p;
    for (size_t slot = 0; slot <= row; ++slot) {
      double dot = 0.0;
      for (size_t d = 0; d < dim; ++d) {
        dot += double{layer_.queries[row][head * dim + d]} * double{k[slot][d]};
      }
      p.push_back(scale * dot);
    }
    const double most = *std::max_element(p.begin(), p.end());
    double sum = 0.0;
    for (double& x : p) {
      x = std::exp(x - most);
      sum += x;
    }
    for (double& x : p) {
      x /= sum;
    }
    return p;
  }

  double RowError(size_t head, const Rung& rung, const std::vector<uint8_t>& columns, size_t row,
                  int64_t recent) const {
    const auto& v = layer_.v[head / group_];
    std::vector<double> whole(v[0].size());
    std::vector<double> kept(v[0].size());
    double mass = 0.0;
    for (size_t slot = 0; slot <= row; ++slot) {
      const double p = map_[head][row][slot];
      const bool keeps = Keeps(rung, columns, row, slot, recent);
      mass += keeps ? p : 0.0;
      for (size_t d = 0; d < whole.size(); ++d) {
        whole[d] += p * double{v[slot][d]};
        kept[d] += keeps ? p * double{v[slot][d]} : 0.0;
      }
    }
    double moved = 0.0;
    double length = 0.0;
    for (size_t d = 0; d < whole.size(); ++d) {
      moved += (kept[d] / mass - whole[d]) * (kept[d] / mass - whole[d]);
      length += whole[d] * whole[d];
    }
    return std::min(std::sqrt(moved / length), 1.0);
  }

  const Recorder::Layer& layer_;
  const std::vector<SlotKind> kinds_;
  const RowSets rows_;
  size_t group_ = 1;
  std::vector<std::vector<std::vector<double>>> map_;  // [query heads][rows][slots]
};

StatisticsOptions Options() {
  StatisticsOptions options;
  options.ladder = DefaultLadder(300'000);
  options.paper_ladder = PaperLadder(300'000);
  options.recent_tokens = 16;
  return options;
}

std::vector<SlotKind> KindsOf(const std::vector<int32_t>& ids,
                              const engine::TokenClasses& classes) {
  std::vector<SlotKind> kinds;
  for (size_t i = 0; i < ids.size(); ++i) {
    const engine::TokenClass each = (*classes)[static_cast<size_t>(ids[i])];
    kinds.push_back(i < 4                                      ? SlotKind::kSink
                    : each == engine::TokenClass::kSpecial     ? SlotKind::kSpecial
                    : each == engine::TokenClass::kPunctuation ? SlotKind::kPunctuation
                                                               : SlotKind::kOther);
  }
  return kinds;
}

TEST(SplitRowsTest, EvalRowsAreTheLastQuarterAndSelectRowsStandBeforeThem) {
  EXPECT_EQ(SplitRows(1).eval_begin, 0);
  EXPECT_EQ(SplitRows(100).eval_begin, 75);
  EXPECT_EQ(SplitRows(100).select_begin, 0);
  EXPECT_EQ(SplitRows(2048).eval_begin, 1536);
  EXPECT_EQ(SplitRows(2048).select_begin, 1024);
  EXPECT_EQ(SplitRows(16384).eval_begin, 16384 - 512);
  EXPECT_EQ(SplitRows(16384).select_begin, 16384 - 1024);
}

TEST(AttentionStatisticsTest, EqualsTheExplicitMap) {
  const models::LoadedModel tiny = headroom::testing::MakeTinyModel({});
  const engine::TokenClasses classes = headroom::testing::RandomClasses(tiny.config.vocab_size, 3);
  ProfiledModel model(headroom::testing::MakeTinyModel({}), kernels::CreateRefBackend(), 50,
                      classes);
  const StatisticsOptions options = Options();
  for (const int32_t n : {2, 17, 65, 230, 290}) {
    SCOPED_TRACE(n);
    const auto reader = model.MakeReader(n);
    const std::vector<int32_t> ids =
        headroom::testing::RandomTokens(n, tiny.config.vocab_size, static_cast<uint64_t>(n));
    const auto statistics = *AttentionStatistics::Create(*reader, options);
    const PromptRecord record = statistics->Measure({ids, n}, "prose", 2.0);
    EXPECT_EQ(record.domain, "prose");
    EXPECT_EQ(record.weight, 2.0);
    Recorder recorder(*reader);
    reader->Read(ids, recorder);
    const RowSets rows = SplitRows(n);
    const auto num_eval = static_cast<size_t>(n - rows.eval_begin);
    const size_t num_values = std::min<size_t>(4, num_eval);
    std::vector<size_t> value_rows;
    for (size_t i = 0; i < num_values; ++i) {
      value_rows.push_back(static_cast<size_t>(rows.eval_begin) +
                           (2 * i + 1) * num_eval / (2 * num_values));
    }
    const auto& rungs = options.ladder.rungs;
    const auto& paper = options.paper_ladder->rungs;
    for (size_t layer = 0; layer < recorder.layers.size(); ++layer) {
      const LayerOracle oracle(recorder.layers[layer], reader->model().attention_scale,
                               KindsOf(ids, classes));
      for (size_t head = 0; head < oracle.num_heads(); ++head) {
        const size_t at = layer * oracle.num_heads() + head;
        const size_t kv_head = head / oracle.group();
        for (size_t r = 0; r < rungs.size(); ++r) {
          const auto columns = oracle.Columns(kv_head, rungs[r], false);
          const double mass =
              oracle.Mass(head, rungs[r], columns, static_cast<size_t>(rows.eval_begin), 16);
          // Double arithmetic on both sides; a rounding of 1 ppm.
          ASSERT_NEAR(record.mass_ppm[at * rungs.size() + r], 1e6 * mass, 1.0)
              << "layer " << layer << " head " << head << " " << rungs[r].name;
          if (head % oracle.group() == 0) {
            const double error = oracle.ValueError(kv_head, rungs[r], columns, value_rows, 16);
            const size_t entry =
                (layer * oracle.num_heads() / oracle.group() + kv_head) * rungs.size() + r;
            ASSERT_NEAR(record.late_p10_ppm[entry],
                        1e6 * oracle.LateP10(kv_head, rungs[r], columns,
                                             std::min<size_t>(64, num_eval), 16),
                        1.0)
                << "layer " << layer << " KV head " << kv_head << " " << rungs[r].name;
            // Outputs are summed in f32.
            ASSERT_NEAR(record.value_error_ppm[entry], 1e6 * error, 5.0)
                << "layer " << layer << " KV head " << kv_head << " " << rungs[r].name;
          }
        }
        for (size_t r = 0; r < paper.size(); ++r) {
          const auto columns = oracle.Columns(kv_head, paper[r], true);
          ASSERT_NEAR(record.paper_mass_ppm[at * paper.size() + r],
                      1e6 * oracle.Mass(head, paper[r], columns, 0, 1), 1.0)
              << "layer " << layer << " head " << head << " paper's " << paper[r].name;
        }
      }
    }
  }
}

void ExpectSame(const PromptRecord& a, const PromptRecord& b) {
  EXPECT_EQ(a.num_tokens, b.num_tokens);
  EXPECT_EQ(a.num_special, b.num_special);
  EXPECT_EQ(a.num_punctuation, b.num_punctuation);
  EXPECT_EQ(a.mass_ppm, b.mass_ppm);
  EXPECT_EQ(a.paper_mass_ppm, b.paper_mass_ppm);
  EXPECT_EQ(a.class_mass_ppm, b.class_mass_ppm);
  EXPECT_EQ(a.value_error_ppm, b.value_error_ppm);
  EXPECT_EQ(a.late_p10_ppm, b.late_p10_ppm);
  EXPECT_EQ(a.overlap_ppm, b.overlap_ppm);
}

TEST(AttentionStatisticsTest, DependsNeitherOnThreadsNorOnChunksNorOnTheOrderOfPrompts) {
  std::vector<PromptTokens> prompts;
  for (const int32_t n : {300, 1100, 90}) {
    prompts.push_back({headroom::testing::RandomTokens(n, 512, static_cast<uint64_t>(n)), n});
  }
  ProfiledModel whole("builtin:needle-1hop", 1, 2048);
  ProfiledModel pieces("builtin:needle-1hop", 3, 37);
  const auto reader = whole.MakeReader(1100, kernels::KvDType::kBF16);
  const auto other_reader = pieces.MakeReader(1500, kernels::KvDType::kBF16);
  const auto statistics = *AttentionStatistics::Create(*reader, Options());
  const auto others = *AttentionStatistics::Create(*other_reader, Options());
  std::vector<PromptRecord> backwards(prompts.size());
  for (size_t i = prompts.size(); i > 0; --i) {
    backwards[i - 1] = others->Measure(prompts[i - 1], "x", 1.0);
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectSame(statistics->Measure(prompts[i], "x", 1.0), backwards[i]);
  }
}

TEST(AttentionStatisticsTest, MemoryIsLinearInThePrompt) {
  headroom::testing::TinyShape shape;
  shape.num_layers = 2;
  const auto peak = [&](int32_t num_tokens) {
    ProfiledModel model(headroom::testing::MakeTinyModel(shape),
                        *kernels::CreateCpuBackend({.num_threads = 2}), 512);
    const auto reader = model.MakeReader(num_tokens);
    const auto statistics = *AttentionStatistics::Create(*reader, Options());
    statistics->Measure({headroom::testing::RandomTokens(num_tokens, 48, 1), num_tokens}, "x", 1.0);
    return static_cast<double>(statistics->peak_bytes());
  };
  const double ratio = peak(16384) / peak(8192);
  EXPECT_LE(ratio, 2.1);
  EXPECT_GE(ratio, 1.5);  // tables of the prompt's length are counted
}

}  // namespace
}  // namespace headroom::profiler
