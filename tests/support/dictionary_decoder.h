// A greedy decoder whose KV cache is a dictionary per (layer, KV head): position -> key, value and
// score. Double precision, one row at a time, no pages, slots, chunks or kernels: what typed decode
// by scores has to equal.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "models/loaded_model.h"

namespace headroom::testing {

struct DictionaryRules {
  int32_t sinks = 0;
  int32_t recent = 0;    // the latest so many positions of a head never go
  int32_t capacity = 0;  // what a head keeps of the prompt, and shrinks to
  bool mean = false;     // scores are divided by the number of rows that have seen the position
};

// Rules of one head that is told what it keeps of the prompt, where they are not everybody's.
struct DictionaryHead {
  std::set<int32_t> kept;
  std::set<int32_t> pinned;    // never go
  std::set<int32_t> unscored;  // start at 0
  bool grows = false;          // nothing goes
  bool by_score = false;       // else the oldest go
  int32_t recent = 1;          // the latest so many positions never go
  int32_t capacity = 0;
};

class DictionaryDecoder {
 public:
  // `model` has f32 weights and outlives the decoder.
  DictionaryDecoder(const models::LoadedModel& model, const DictionaryRules& rules);

  // Reads the prompt whole, then lets every head keep sinks, recent positions and the best others.
  // Returns the first token.
  int32_t Read(const std::vector<int32_t>& prompt);
  // Takes the token before and returns the next one. A head that holds capacity + 16 positions
  // first loses its 16 lowest.
  int32_t Next(int32_t token);

  // The same with rules of every head: reads the prompt, scores by the rows that `observes` names.
  void Read(const std::vector<int32_t>& prompt, const std::function<bool(int32_t)>& observes);
  // After that, for every head; from then on Next follows its rules.
  void Settle(int32_t layer, int32_t kv_head, const DictionaryHead& rules);
  // The next position never goes from this head.
  void PinNext(int32_t layer, int32_t kv_head);

  // Sees the probabilities that every row gives the positions of a head, ascending.
  using Watcher = std::function<void(int32_t layer, int32_t query_head, int32_t row,
                                     const std::vector<double>& probabilities)>;
  void Watch(Watcher watcher) { watcher_ = std::move(watcher); }

  // Positions of a head, ascending.
  std::vector<int32_t> Positions(int32_t layer, int32_t kv_head) const;
  // The smallest relative distance, over all evictions so far, between the score of the last that
  // went and of the first that stayed: below the rounding of a cache the choice is open.
  double smallest_gap() const { return smallest_gap_; }

 private:
  struct Entry {
    std::vector<double> k;
    std::vector<double> v;
    double score = 0.0;
  };
  using Head = std::map<int32_t, Entry>;

  int32_t Run(int32_t token);
  void RunLayer(int32_t layer, std::vector<double>& hidden);
  std::vector<double> Attend(Head& head, const double* query, int32_t layer, int32_t query_head);
  void Rotate(double* head) const;
  void Drop(Head& head, int32_t count);
  void DropSettled(Head& head, const DictionaryHead& rules);
  // Erases the first `count` of candidates that are in order of (score, -position).
  void EraseLowest(Head& head, std::vector<std::pair<double, int32_t>> order, int32_t count);

  const models::LoadedModel& model_;
  const DictionaryRules rules_;
  std::vector<std::vector<Head>> heads_;  // [layer][kv head]
  std::map<std::pair<int32_t, int32_t>, DictionaryHead> settled_;
  Watcher watcher_;
  bool observed_ = true;  // the row in hand adds to scores
  int32_t position_ = 0;  // of the next row
  double smallest_gap_ = 1.0;
};

}  // namespace headroom::testing
