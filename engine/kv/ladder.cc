#include "engine/kv/ladder.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace headroom::engine {
namespace {

int32_t LocalBegin(const Rung& rung, int32_t num_slots) {
  return num_slots - std::min(rung.local_slots, num_slots);
}

}  // namespace

void LadderExecutor::Mark(const HeadPlan& plan, const LadderInput& input, int32_t rung,
                          int32_t kv_head) {
  const Rung& step = plan.rungs[static_cast<size_t>(rung)];
  const auto num_slots = static_cast<size_t>(input.num_slots);
  kept_columns_.assign(num_slots, 0);
  std::fill_n(kept_columns_.begin(), std::min(plan.sink_slots, input.num_slots), uint8_t{1});
  for (size_t slot = 0; slot < input.classes.size(); ++slot) {
    if ((step.special && input.classes[slot] == TokenClass::kSpecial) ||
        (step.punctuation && input.classes[slot] == TokenClass::kPunctuation)) {
      kept_columns_[slot] = 1;
    }
  }
  if (step.heavy_entries == 0) {
    return;
  }
  skip_ = kept_columns_;
  std::fill(skip_.begin() + LocalBegin(step, input.num_slots), skip_.end(), uint8_t{1});
  const auto candidates = static_cast<int32_t>(std::count(skip_.begin(), skip_.end(), uint8_t{0}));
  heavy_.resize(static_cast<size_t>(std::min(step.heavy_entries, candidates)));
  HEADROOM_CHECK(input.scores != nullptr && input.scores->num_columns == input.num_slots);
  const size_t begin = static_cast<size_t>(kv_head) * num_slots;
  backend_.SelectTopK({.scores = input.scores->pooled.data() + begin,
                       .tie_break = input.scores->raw.data() + begin,
                       .skip = skip_.data(),
                       .num_scores = input.num_slots,
                       .k = static_cast<int32_t>(heavy_.size()),
                       .out = heavy_.data()});
  for (const int32_t slot : heavy_) {
    kept_columns_[static_cast<size_t>(slot)] = 1;
  }
}

int64_t LadderExecutor::MassUnits(const HeadPlan& plan, const LadderInput& input, int32_t rung,
                                  int32_t query_head) const {
  const bool moves = plan.rungs[static_cast<size_t>(rung)].local_slots > 0;
  const auto num_slots = static_cast<size_t>(input.num_slots);
  const size_t begin = static_cast<size_t>(query_head) * num_slots;
  int64_t units = 0;
  for (size_t slot = 0; slot < num_slots; ++slot) {
    if (kept_columns_[slot] != 0) {
      units += input.mass->sums[begin + slot];
    } else if (moves) {
      units += input.mass->near[begin + slot];
    }
  }
  return units;
}

int32_t LadderExecutor::Select(const HeadPlan& plan, const LadderInput& input, int32_t kv_head,
                               std::vector<int32_t>& kept) {
  HEADROOM_CHECK(input.mass != nullptr && input.num_mass_rows >= 1);
  // Doubles hold these products to one part in 2^53, far below what f32 leaves of a mass.
  const double wanted = static_cast<double>(plan.mass_target_ppm) / static_cast<double>(kPpm) *
                        static_cast<double>(input.num_mass_rows) *
                        static_cast<double>(kernels::kColumnUnit);
  for (int32_t rung = 0; rung < static_cast<int32_t>(plan.rungs.size()); ++rung) {
    Mark(plan, input, rung, kv_head);
    int64_t least = std::numeric_limits<int64_t>::max();
    for (int32_t g = 0; g < input.group_size; ++g) {
      least = std::min(least, MassUnits(plan, input, rung, kv_head * input.group_size + g));
    }
    if (static_cast<double>(least) >= wanted) {
      kept = RungSlots(plan, input, rung, kv_head);
      return rung;
    }
  }
  kept.resize(static_cast<size_t>(input.num_slots));
  std::iota(kept.begin(), kept.end(), 0);
  return static_cast<int32_t>(plan.rungs.size());
}

double LadderExecutor::Mass(const HeadPlan& plan, const LadderInput& input, int32_t rung,
                            int32_t query_head) {
  Mark(plan, input, rung, query_head / input.group_size);
  return static_cast<double>(MassUnits(plan, input, rung, query_head)) /
         static_cast<double>(kernels::kColumnUnit) / input.num_mass_rows;
}

const std::vector<int32_t>& LadderExecutor::RungSlots(const HeadPlan& plan,
                                                      const LadderInput& input, int32_t rung,
                                                      int32_t kv_head) {
  Mark(plan, input, rung, kv_head);
  const int32_t local = LocalBegin(plan.rungs[static_cast<size_t>(rung)], input.num_slots);
  slots_.clear();
  for (int32_t slot = 0; slot < input.num_slots; ++slot) {
    if (slot >= local || kept_columns_[static_cast<size_t>(slot)] != 0) {
      slots_.push_back(slot);
    }
  }
  return slots_;
}

}  // namespace headroom::engine
