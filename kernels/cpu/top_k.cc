#include <bit>

#include "base/check.h"
#include "kernels/cpu/attention_ops.h"

namespace headroom::kernels {
namespace {

// Bits that order as the numbers do, the two zeros equal, 0 for NaN (no number has it).
uint32_t OrderedBits(float value) {
  if (value != value) {
    return 0;
  }
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) == 0) {
    return 0x80000000u;
  }
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

uint64_t TopKKey(const SelectTopKParams& params, int32_t i) {
  const uint32_t score = OrderedBits(params.scores[i]);
  if (score == 0 || params.tie_break == nullptr) {
    return uint64_t{score} << 32;
  }
  return (uint64_t{score} << 32) | OrderedBits(params.tie_break[i]);
}

// The k-th largest of n keys, k in [1, n], by digits from the top; overwrites keys.
uint64_t KthLargest(uint64_t* keys, int32_t n, int32_t k) {
  constexpr int kDigitBits = 11;
  constexpr uint32_t kNumDigits = 1u << kDigitBits;
  int32_t counts[kNumDigits];
  for (int shift = 64 - kDigitBits; n > 1; shift = shift > kDigitBits ? shift - kDigitBits : 0) {
    for (int32_t& count : counts) {
      count = 0;
    }
    for (int32_t i = 0; i < n; ++i) {
      ++counts[(keys[i] >> shift) % kNumDigits];
    }
    uint32_t digit = kNumDigits - 1;
    while (counts[digit] < k) {
      k -= counts[digit--];
    }
    int32_t num_left = 0;
    for (int32_t i = 0; i < n; ++i) {
      if ((keys[i] >> shift) % kNumDigits == digit) {
        keys[num_left++] = keys[i];
      }
    }
    n = num_left;
    if (shift == 0) {
      break;  // all that are left are equal
    }
  }
  return keys[0];
}

}  // namespace

void AttentionOps::SelectTopK(const SelectTopKParams& params) {
  const int32_t n = params.num_scores;
  HEADROOM_CHECK(params.k >= 0 && params.k <= n);
  if (params.k == 0) {
    return;
  }
  if (scratch_.top_k_keys.size() < 2 * static_cast<size_t>(n)) {
    scratch_.top_k_keys.resize(2 * static_cast<size_t>(n));
  }
  uint64_t* keys = scratch_.top_k_keys.data();
  uint64_t* candidates = keys + n;
  int32_t num_candidates = 0;
  for (int32_t i = 0; i < n; ++i) {
    keys[i] = TopKKey(params, i);
    if (params.skip == nullptr || params.skip[i] == 0) {
      candidates[num_candidates++] = keys[i];
    }
  }
  HEADROOM_CHECK(params.k <= num_candidates);
  const uint64_t cut = KthLargest(candidates, num_candidates, params.k);
  int32_t num_above = 0;
  for (int32_t i = 0; i < n; ++i) {
    if ((params.skip == nullptr || params.skip[i] == 0) && keys[i] > cut) {
      ++num_above;
    }
  }
  int32_t num_at_cut = params.k - num_above;  // the lowest indices among equals
  int32_t* out = params.out;
  for (int32_t i = 0; i < n; ++i) {
    if (params.skip != nullptr && params.skip[i] != 0) {
      continue;
    }
    if (keys[i] > cut || (keys[i] == cut && num_at_cut-- > 0)) {
      *out++ = i;
    }
  }
}

}  // namespace headroom::kernels
