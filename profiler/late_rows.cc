#include "profiler/late_rows.h"

#include <algorithm>

#include "base/check.h"

namespace headroom::profiler {
namespace {

constexpr size_t kTenth = 10;

}  // namespace

LateRows::LateRows(const RungSets& sets, int32_t num_kv_heads, int32_t group_size)
    : sets_(sets),
      group_size_(group_size),
      patterns_(static_cast<size_t>(num_kv_heads)),
      masses_(static_cast<size_t>(num_kv_heads) * sets.num_rungs()),
      least_(sets.num_rungs()),
      of_head_(sets.num_rungs()) {}

void LateRows::SetHead(int32_t kv_head) {
  patterns_[static_cast<size_t>(kv_head)] = sets_.ColumnPatterns();
}

void LateRows::AddRow(std::span<const int64_t> probabilities, int32_t visible) {
  const auto width = static_cast<size_t>(sets_.num_tokens());
  const auto group = static_cast<size_t>(group_size_);
  HEADROOM_CHECK(probabilities.size() == patterns_.size() * group * width);
  for (size_t kv_head = 0; kv_head < patterns_.size(); ++kv_head) {
    for (size_t member = 0; member < group; ++member) {
      sets_.RowMasses(
          patterns_[kv_head],
          probabilities.subspan((kv_head * group + member) * width, static_cast<size_t>(visible)),
          of_head_.data());
      for (size_t rung = 0; rung < least_.size(); ++rung) {
        least_[rung] = member == 0 ? of_head_[rung] : std::min(least_[rung], of_head_[rung]);
      }
    }
    for (size_t rung = 0; rung < least_.size(); ++rung) {
      masses_[kv_head * least_.size() + rung].push_back(least_[rung]);
    }
  }
}

void LateRows::Finish(int32_t* p10_ppm) {
  for (size_t i = 0; i < masses_.size(); ++i) {
    std::vector<int32_t>& rows = masses_[i];
    HEADROOM_CHECK(!rows.empty());
    std::sort(rows.begin(), rows.end());
    p10_ppm[i] = rows[(rows.size() + kTenth - 1) / kTenth - 1];
    rows.clear();
  }
}

size_t LateRows::num_bytes() const {
  size_t bytes = 0;
  for (const RungSets::Patterns& patterns : patterns_) {
    bytes += patterns.of_slot.size() * sizeof(uint16_t);
  }
  return bytes;
}

}  // namespace headroom::profiler
