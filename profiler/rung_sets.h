// RungSets: what every rung of a ladder keeps of one prompt's slots, and how much of the attention
// falls on it. Everything comes from tables of linear size: column sums by distance bucket.
//
// A kept column counts with all of its buckets, any other with those inside the rung's window. So
// the mean mass of special + punctuation + heavy + window follows exactly from one table, for every
// rung at once, as long as windows end on edges: the edges are made of the ladder's windows.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "profiler/profile_record.h"

namespace headroom::profiler {

// In order of precedence.
enum class SlotKind : uint8_t { kSink, kSpecial, kPunctuation, kOther };

// A sum of probabilities (kernels::kColumnUnit each) over `num_rows` rows as a mean in ppm.
int32_t MeanMassPpm(int64_t sum, int64_t num_rows);

class RungSets {
 public:
  // For a prompt of kinds.size() tokens. Rows see their last `recent_tokens` tokens under every
  // rung. Columns from `heavy_end` on are never heavy: nothing was seen of them. At most 64 rungs,
  // whose windows have at most kernels::kMaxBuckets - 1 different lengths (CHECK).
  RungSets(const Ladder& ladder, std::vector<SlotKind> kinds, int32_t recent_tokens,
           int32_t heavy_end);

  int32_t num_tokens() const { return static_cast<int32_t>(kinds_.size()); }
  size_t num_rungs() const { return rungs_.size(); }
  const std::vector<SlotKind>& kinds() const { return kinds_; }
  // Edges of the distance buckets of every table below: [1, kMaxBuckets - 1], ascending.
  const std::vector<int32_t>& edges() const { return edges_; }
  // Int64 of a table [edges + 1, num_tokens].
  size_t table_size() const { return (edges_.size() + 1) * kinds_.size(); }

  // Chooses the heavy columns of a KV head: by sum, then the lower position. [num_tokens]
  void RankColumns(std::span<const int64_t> sums);

  // Turns a table into running sums over its buckets, which the next two read.
  void Accumulate(std::span<int64_t> table) const;
  // Mean kept mass of every rung, in ppm; 1 for rungs that keep all: [num_rungs].
  void Masses(std::span<const int64_t> running, int64_t num_rows, int32_t* mass_ppm) const;
  // Mean mass of sinks, special tokens, punctuation, the last recent_tokens, the rest; together 1.
  std::array<int32_t, 5> ClassMasses(std::span<const int64_t> running, int64_t num_rows) const;

  // What rungs keep of the columns of the KV head that was ranked last, whatever their distance: a
  // pattern for each slot [num_tokens], and for each pattern the rungs (bit r: rung r).
  struct Patterns {
    std::vector<uint16_t> of_slot;
    std::vector<uint64_t> rungs;
  };
  Patterns ColumnPatterns() const;
  // Kept mass of every rung for one row, exactly, in ppm: [num_rungs]. `probabilities` of the slots
  // that the row sees, kernels::kColumnUnit each: its own is the last.
  void RowMasses(const Patterns& patterns, std::span<const int64_t> probabilities,
                 int32_t* mass_ppm) const;

  // Bit r: rung r keeps the slot for a row that sees it at this distance.
  uint64_t RungsThatKeep(int32_t slot, int32_t distance) const;

 private:
  struct Set {
    bool all = false;
    bool punctuation = false;
    int32_t window = 0;  // tokens, recent ones at least
    int32_t bucket = 0;  // the last one inside the window
    int32_t heavy = 0;   // columns
  };
  bool KeepsColumn(const Set& set, size_t slot) const {
    return kinds_[slot] <= (set.punctuation ? SlotKind::kPunctuation : SlotKind::kSpecial) ||
           ranks_[set.punctuation ? 1 : 0][slot] < set.heavy;
  }
  int32_t BucketOf(int32_t window) const;

  const std::vector<SlotKind> kinds_;
  const int32_t recent_tokens_;
  const int32_t heavy_end_;
  std::vector<Set> rungs_;
  std::vector<int32_t> edges_;
  int32_t most_heavy_[2] = {0, 0};  // columns of any rung without and with punctuation
  // Places of the columns among those that are neither special nor (1) punctuation: [num_tokens].
  std::vector<int32_t> ranks_[2];
  std::vector<int32_t> order_;  // scratch
};

}  // namespace headroom::profiler
