// The merges of byte-level BPE: which pair of tokens becomes which token, and how early.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/status.h"
#include "models/tokenizer/vocabulary.h"

namespace headroom::models {

// A flat hash table, probed linearly and at most half full: almost every look-up of a pair that
// does not merge ends in the first cache line. Immutable once made.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank = std::numeric_limits<uint32_t>::max();  // that value: the pair does not merge
    int32_t result = -1;
    bool exists() const { return result >= 0; }
  };

  // `merges` as in TokenizerData. A pair that occurs twice keeps its first rank. Merges that would
  // make a token that messages must not become are left out. Errors name the entry.
  static StatusOr<MergeTable> Create(const std::vector<std::string>& merges,
                                     const Vocabulary& vocabulary);

  // Negative ids merge with nothing.
  Merge Find(int32_t left, int32_t right) const {
    if (left < 0 || right < 0) {
      return {};
    }
    const uint64_t key = Key(left, right);
    for (size_t slot = FirstSlot(key);; slot = (slot + 1) & mask_) {
      if (slots_[slot].key == key) {
        return slots_[slot].merge;
      }
      if (slots_[slot].key == kEmpty) {
        return {};
      }
    }
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};  // no key: ids are not negative

  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };

  explicit MergeTable(size_t num_merges);

  static uint64_t Key(int32_t left, int32_t right) {
    return (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
  }
  size_t FirstSlot(uint64_t key) const {
    return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> shift_);
  }
  void Insert(int32_t left, int32_t right, Merge merge);

  std::vector<Slot> slots_;  // a power of two
  size_t mask_ = 0;
  int shift_ = 0;
};

}  // namespace headroom::models
