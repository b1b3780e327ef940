#include "models/tokenizer/merge_table.h"

#include <bit>

namespace headroom::models {
namespace {

// 2^26 slots of 16 bytes; far above any merges list in use.
constexpr size_t kMaxMerges = size_t{1} << 25;

Status NoSuchPiece(size_t index, const std::string& merge, std::string_view piece) {
  return InvalidArgument("tokenizer: merge {} is '{}', but '{}' is no piece of the vocabulary",
                         index, merge, piece);
}

}  // namespace

MergeTable::MergeTable(size_t num_merges) {
  const size_t num_slots = std::bit_ceil(2 * num_merges + 2);
  slots_.resize(num_slots);
  mask_ = num_slots - 1;
  shift_ = 64 - std::countr_zero(num_slots);
}

void MergeTable::Insert(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = Key(left, right);
  size_t slot = FirstSlot(key);
  while (slots_[slot].key != kEmpty) {
    if (slots_[slot].key == key) {
      return;
    }
    slot = (slot + 1) & mask_;
  }
  slots_[slot] = {key, merge};
}

StatusOr<MergeTable> MergeTable::Create(const std::vector<std::string>& merges,
                                        const Vocabulary& vocabulary) {
  if (merges.size() > kMaxMerges) {
    return InvalidArgument("tokenizer: {} merges, wanted at most {}", merges.size(), kMaxMerges);
  }
  MergeTable table(merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    const std::string_view merge = merges[i];
    // A piece may start with a space (it does not in byte-level spelling), but is never empty.
    const size_t space = merge.find(' ', 1);
    if (merge.empty() || space == std::string_view::npos || space + 1 == merge.size()) {
      return InvalidArgument("tokenizer: merge {} is '{}', wanted two pieces with a space between",
                             i, merges[i]);
    }
    const std::string_view left = merge.substr(0, space);
    const std::string_view right = merge.substr(space + 1);
    const std::string joined = std::string(left) + std::string(right);
    const int32_t left_id = vocabulary.FindAny(left);
    const int32_t right_id = vocabulary.FindAny(right);
    const int32_t result_id = vocabulary.FindAny(joined);
    if (left_id < 0) {
      return NoSuchPiece(i, merges[i], left);
    }
    if (right_id < 0) {
      return NoSuchPiece(i, merges[i], right);
    }
    if (result_id < 0) {
      return NoSuchPiece(i, merges[i], joined);
    }
    if (vocabulary.IsAllowedInMessages(result_id)) {
      table.Insert(left_id, right_id, {static_cast<uint32_t>(i), result_id});
    }
  }
  return table;
}

}  // namespace headroom::models
