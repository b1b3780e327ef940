// Where an element lies in a KV page of the cpu backend.
//
// A page holds K, then V, of 16 tokens of one KV head. head_dim is zero-padded to a multiple of 16
// (`padded_dim`), so every page is a multiple of 64 bytes:
//
//   bf16   K [padded_dim / 2][16 tokens][2]   V [8 token pairs][padded_dim][2]
//   f32    K [padded_dim][16 tokens]          V [16 tokens][padded_dim]
//   int8   f32 scales of K [16 tokens] and of V [16 tokens], then K and V as in f32
//
// Sixteen neighbours in K are one dimension (pair) of all tokens, in V sixteen dimensions of one
// token (pair): what one dot-product instruction wants on each side. Kernels never read a slot that
// a row does not see into its result, so the tail of a list's last page may hold anything.
//
// Included by kernel units (simd_common.h): everything here is static and always inlined.
#pragma once

#include <stdint.h>

#include "kernels/cpu/simd_common.h"

namespace headroom::kernels {

static constexpr int32_t kKvPageTokens = 16;
static constexpr int32_t kMaxHeadDim = 256;
// What lies before K: the scales of an int8 page.
static constexpr int32_t kInt8HeaderBytes = 2 * kKvPageTokens * 4;

HEADROOM_INLINE int32_t PaddedHeadDim(int32_t head_dim) { return (head_dim + 15) / 16 * 16; }

// Elements of K (or V) in a page.
HEADROOM_INLINE int64_t KvHalfElements(int32_t padded_dim) {
  return static_cast<int64_t>(padded_dim) * kKvPageTokens;
}

// Element offsets inside a page's K and V. kPack: elements that sit side by side, 2 in bf16, 1 in
// f32 and int8.
template <int kPack>
HEADROOM_INLINE int64_t KElementOffset(int32_t token, int32_t dim) {
  return (static_cast<int64_t>(dim / kPack) * kKvPageTokens + token) * kPack + dim % kPack;
}
template <int kPack>
HEADROOM_INLINE int64_t VElementOffset(int32_t token, int32_t dim, int32_t padded_dim) {
  return (static_cast<int64_t>(token / kPack) * padded_dim + dim) * kPack + token % kPack;
}

// The scales of a scaled page, from where its K begins.
template <typename Element>
HEADROOM_INLINE const float* KScales(const Element* k) {
  return reinterpret_cast<const float*>(k) - 2 * kKvPageTokens;
}
template <typename Element>
HEADROOM_INLINE const float* VScales(const Element* k) {
  return reinterpret_cast<const float*>(k) - kKvPageTokens;
}

}  // namespace headroom::kernels
