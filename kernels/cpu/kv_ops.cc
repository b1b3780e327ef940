#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "kernels/cpu/attention_ops.h"
#include "kernels/cpu/kv_layout.h"
#include "kernels/cpu/simd_scalar.h"

namespace headroom::kernels {
namespace {

constexpr int64_t kRopeRowsPerItem = 8;

// Bytes of a page before its K.
template <typename Element>
constexpr int64_t HeaderBytes() {
  return sizeof(Element) == 1 ? kInt8HeaderBytes : 0;
}

uint8_t* PageBytesOf(const KvArena& arena, int64_t slot) {
  return static_cast<uint8_t*>(arena.base) +
         slot / kPageSize * static_cast<int64_t>(arena.page_bytes);
}

// Where K of a slot's page begins.
template <typename Element>
Element* PageOf(const KvArena& arena, int64_t slot) {
  return reinterpret_cast<Element*>(PageBytesOf(arena, slot) + HeaderBytes<Element>());
}

// The K scale of a slot in an int8 page; the V scale lies kPageSize floats behind it.
float* ScaleOf(const KvArena& arena, int64_t slot) {
  return reinterpret_cast<float*>(PageBytesOf(arena, slot)) + slot % kPageSize;
}

// Copies K and V of one slot. kPack as in kv_layout.h.
template <typename Element, int kPack>
void CopySlot(const KvArena& arena, const KvMove& move) {
  const int32_t padded_dim = PaddedHeadDim(arena.geometry.head_dim);
  const int32_t src_token = static_cast<int32_t>(move.src_slot % kPageSize);
  const int32_t dst_token = static_cast<int32_t>(move.dst_slot % kPageSize);
  const Element* src = PageOf<Element>(arena, move.src_slot);
  Element* dst = PageOf<Element>(arena, move.dst_slot);
  const Element* src_k = src + KElementOffset<kPack>(src_token, 0);
  Element* dst_k = dst + KElementOffset<kPack>(dst_token, 0);
  for (int32_t d = 0; d < padded_dim; d += kPack) {
    std::memcpy(dst_k + d * kPageSize, src_k + d * kPageSize, kPack * sizeof(Element));
  }
  const int64_t half = KvHalfElements(padded_dim);
  const Element* src_v = src + half + VElementOffset<kPack>(src_token, 0, padded_dim);
  Element* dst_v = dst + half + VElementOffset<kPack>(dst_token, 0, padded_dim);
  for (int32_t d = 0; d < padded_dim; ++d) {
    dst_v[d * kPack] = src_v[d * kPack];
  }
  if constexpr (HeaderBytes<Element>() != 0) {
    float* dst_scale = ScaleOf(arena, move.dst_slot);
    const float* src_scale = ScaleOf(arena, move.src_slot);
    std::memcpy(dst_scale, src_scale, sizeof(float));
    std::memcpy(dst_scale + kPageSize, src_scale + kPageSize, sizeof(float));
  }
}

// k_convert and v_convert: an f32 as an element.
template <typename Element, int kPack, typename Convert>
void WriteSlot(const KvArena& arena, int64_t slot, const float* k, const float* v,
               Convert k_convert, Convert v_convert) {
  const int32_t head_dim = arena.geometry.head_dim;
  const int32_t padded_dim = PaddedHeadDim(head_dim);
  const int32_t token = static_cast<int32_t>(slot % kPageSize);
  Element* page = PageOf<Element>(arena, slot);
  for (int32_t d = 0; d < padded_dim; ++d) {
    page[KElementOffset<kPack>(token, d)] = k_convert(d < head_dim ? k[d] : 0.0f);
    page[KvHalfElements(padded_dim) + VElementOffset<kPack>(token, d, padded_dim)] =
        v_convert(d < head_dim ? v[d] : 0.0f);
  }
}

// x / scale as a whole number; 0 where the scale stands for zeros or no number at all.
struct Int8Rounder {
  float scale = 0.0f;

  // Of x [head_dim], by KvDType::kInt8.
  static Int8Rounder Of(const float* x, int32_t head_dim) {
    float largest = 0.0f;
    for (int32_t d = 0; d < head_dim; ++d) {
      if (!std::isfinite(x[d])) {
        return {std::numeric_limits<float>::quiet_NaN()};
      }
      largest = std::max(largest, std::abs(x[d]));
    }
    const float scale = largest / 127.0f;
    return {scale >= std::numeric_limits<float>::min() ? scale : 0.0f};
  }
  int8_t operator()(float x) const {
    return scale > 0.0f ? static_cast<int8_t>(std::nearbyint(x / scale)) : int8_t{0};
  }
};

template <typename Element, int kPack, typename Convert>
void ReadSlot(const KvArena& arena, int64_t slot, float* k, float* v, Convert convert) {
  const int32_t padded_dim = PaddedHeadDim(arena.geometry.head_dim);
  const int32_t token = static_cast<int32_t>(slot % kPageSize);
  const Element* page = PageOf<Element>(arena, slot);
  for (int32_t d = 0; d < arena.geometry.head_dim; ++d) {
    k[d] = convert(page[KElementOffset<kPack>(token, d)]);
    v[d] = convert(page[KvHalfElements(padded_dim) + VElementOffset<kPack>(token, d, padded_dim)]);
  }
}

}  // namespace

size_t AttentionOps::KvPageBytes(const KvGeometry& geometry) {
  const int64_t header = geometry.dtype == KvDType::kInt8 ? kInt8HeaderBytes : 0;
  return static_cast<size_t>(header + 2 * KvHalfElements(PaddedHeadDim(geometry.head_dim)) *
                                          KvElementBytes(geometry.dtype));
}

void AttentionOps::RopeStore(const RopeStoreParams& params) {
  const KvGeometry& geometry = params.arena.geometry;
  HEADROOM_CHECK(geometry.head_dim <= kMaxHeadDim && geometry.head_dim % 2 == 0);
  const auto rope_row = KernelOf(geometry.dtype, kernels_.rope_row_f32, kernels_.rope_row_bf16,
                                 kernels_.rope_row_int8);
  const int64_t num_items = (params.num_rows + kRopeRowsPerItem - 1) / kRopeRowsPerItem;
  pool_.ParallelFor(num_items, [&](int64_t item, int) {
    const int64_t end = std::min(params.num_rows, (item + 1) * kRopeRowsPerItem);
    for (int64_t r = item * kRopeRowsPerItem; r < end; ++r) {
      rope_row({.qkv = params.qkv + r * params.qkv_stride,
                .cos = params.cos + r * (geometry.head_dim / 2),
                .sin = params.sin + r * (geometry.head_dim / 2),
                .interleaved = params.interleaved,
                .num_query_heads = geometry.num_kv_heads * geometry.group_size,
                .num_kv_heads = geometry.num_kv_heads,
                .head_dim = geometry.head_dim,
                .arena = static_cast<uint8_t*>(params.arena.base),
                .page_bytes = static_cast<int64_t>(params.arena.page_bytes),
                .dst_slots = params.dst_slots + r * geometry.num_kv_heads});
    }
  });
}

void AttentionOps::MoveKv(const MoveKvParams& params) {
  pool_.ParallelFor(static_cast<int64_t>(params.lists.size()), [&](int64_t list, int) {
    for (const KvMove& move : params.lists[static_cast<size_t>(list)]) {
      KernelOf(params.arena.geometry.dtype, CopySlot<float, 1>, CopySlot<uint16_t, 2>,
               CopySlot<int8_t, 1>)(params.arena, move);
    }
  });
}

void AttentionOps::WriteKvSlot(const KvArena& arena, int64_t slot, const float* k, const float* v) {
  switch (arena.geometry.dtype) {
    case KvDType::kF32: {
      const auto keep = [](float x) { return x; };
      WriteSlot<float, 1>(arena, slot, k, v, keep, keep);
      return;
    }
    case KvDType::kBF16: {
      const auto round = [](float x) { return cpu_scalar::F32ToBf16(x); };
      WriteSlot<uint16_t, 2>(arena, slot, k, v, round, round);
      return;
    }
    case KvDType::kInt8: {
      const Int8Rounder k_rounder = Int8Rounder::Of(k, arena.geometry.head_dim);
      const Int8Rounder v_rounder = Int8Rounder::Of(v, arena.geometry.head_dim);
      WriteSlot<int8_t, 1>(arena, slot, k, v, k_rounder, v_rounder);
      ScaleOf(arena, slot)[0] = k_rounder.scale;
      ScaleOf(arena, slot)[kPageSize] = v_rounder.scale;
      return;
    }
  }
}

void AttentionOps::ReadKvSlot(const KvArena& arena, int64_t slot, float* k, float* v) {
  switch (arena.geometry.dtype) {
    case KvDType::kF32:
      ReadSlot<float, 1>(arena, slot, k, v, [](float x) { return x; });
      return;
    case KvDType::kBF16:
      ReadSlot<uint16_t, 2>(arena, slot, k, v, [](uint16_t x) {
        return cpu_scalar::FloatOf1(static_cast<uint32_t>(x) << 16);
      });
      return;
    case KvDType::kInt8:
      ReadSlot<int8_t, 1>(arena, slot, k, v, [](int8_t x) { return static_cast<float>(x); });
      for (int32_t d = 0; d < arena.geometry.head_dim; ++d) {
        k[d] *= ScaleOf(arena, slot)[0];
        v[d] *= ScaleOf(arena, slot)[kPageSize];
      }
      return;
  }
}

}  // namespace headroom::kernels
