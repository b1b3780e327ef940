// What linear layers need beyond simd_scalar.h. Contract: linear_simd_avx512.h.
#pragma once

#include "kernels/cpu/simd_scalar.h"

namespace headroom::kernels::cpu_scalar {

static constexpr int kMaxQuantRows = 1;
static constexpr int QuantGroups(int /*rows*/) { return 1; }
// Rows up to which the sums of both bytes of the activations fit.
static constexpr int kSeparatePlaneRows = 1;
static constexpr int kUnpackedRows = 1;
static constexpr int kUnpackedGroups = 1;
static constexpr int kMaxFloatRows = 1;
static constexpr int FloatGroups(int /*rows*/) { return 1; }

HEADROOM_INLINE I32x16 BroadcastBytes(const int8_t* a) {
  int32_t four;
  memcpy(&four, a, sizeof(four));
  return Set1I(four);
}
HEADROOM_INLINE I32x16 DotNarrow(I32x16 acc, I32x16 weights, I32x16 a) {
  for (int i = 0; i < 16; ++i) {
    int32_t sum = 0;
    for (int j = 0; j < 4; ++j) {
      const auto signed_byte = static_cast<int8_t>(a.v[0] >> (8 * j));
      sum += static_cast<int32_t>((weights.v[i] >> (8 * j)) & 0xffu) * signed_byte;
    }
    acc.v[i] += static_cast<uint32_t>(sum);
  }
  return acc;
}
HEADROOM_INLINE I32x16 DotWide(I32x16 acc, I32x16 weights, I32x16 a) {
  return DotNarrow(acc, weights, a);
}
HEADROOM_INLINE I32x16 DotBytes(I32x16 acc, I32x16 weights, const int8_t* a) {
  return DotNarrow(acc, weights, BroadcastBytes(a));
}
HEADROOM_INLINE I32x16 DotWideBytes(I32x16 acc, I32x16 weights, const int8_t* a) {
  return DotBytes(acc, weights, a);
}
HEADROOM_INLINE I32x16 OrFifthBits(I32x16 nibbles, const uint8_t* bits) {
  for (int i = 0; i < 16; ++i) {
    const uint32_t four = (bits[i / 2] >> (4 * (i & 1))) & 0xfu;
    // Copies of the four bits land 7 apart, so that bit j meets bit 8 j.
    nibbles.v[i] |= ((four * 0x00204081u) & 0x01010101u) << 4;
  }
  return nibbles;
}
// Lane i = the largest lane of v[i].
HEADROOM_INLINE F32x16 ReduceMaxEach(const F32x16* v) {
  float largest[16];
  for (int i = 0; i < 16; ++i) {
    largest[i] = ReduceMax(v[i]);
  }
  return Load(largest);
}
// Lane i = the sum of the lanes of v[i], which must be exact in f32.
HEADROOM_INLINE I32x16 ReduceAddEach(const I32x16* v) {
  float sums[16];
  for (int i = 0; i < 16; ++i) {
    sums[i] = ReduceAdd(IntToFloat(v[i]));
  }
  return RoundToInt(Load(sums));
}

}  // namespace headroom::kernels::cpu_scalar
