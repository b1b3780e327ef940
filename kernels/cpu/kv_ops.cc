#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/cpu/attention_ops.h"
#include "kernels/cpu/kv_layout.h"
#include "kernels/cpu/simd_scalar.h"

namespace headroom::kernels {
namespace {

constexpr int64_t kRopeRowsPerItem = 8;

template <typename Element>
Element* PageOf(const KvArena& arena, int64_t slot) {
  auto* base = static_cast<uint8_t*>(arena.base);
  return reinterpret_cast<Element*>(base + slot / kPageSize *
                                               static_cast<int64_t>(arena.page_bytes));
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
}

template <typename Element, int kPack, typename Convert>
void WriteSlot(const KvArena& arena, int64_t slot, const float* k, const float* v,
               Convert convert) {
  const int32_t head_dim = arena.geometry.head_dim;
  const int32_t padded_dim = PaddedHeadDim(head_dim);
  const int32_t token = static_cast<int32_t>(slot % kPageSize);
  Element* page = PageOf<Element>(arena, slot);
  for (int32_t d = 0; d < padded_dim; ++d) {
    page[KElementOffset<kPack>(token, d)] = convert(d < head_dim ? k[d] : 0.0f);
    page[KvHalfElements(padded_dim) + VElementOffset<kPack>(token, d, padded_dim)] =
        convert(d < head_dim ? v[d] : 0.0f);
  }
}

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
  return 2 * static_cast<size_t>(KvHalfElements(PaddedHeadDim(geometry.head_dim))) *
         static_cast<size_t>(KvElementBytes(geometry.dtype));
}

void AttentionOps::RopeStore(const RopeStoreParams& params) {
  const KvGeometry& geometry = params.arena.geometry;
  HEADROOM_CHECK(geometry.head_dim <= kMaxHeadDim && geometry.head_dim % 2 == 0);
  const auto rope_row = geometry.dtype == KvDType::kBF16 ? kernels_.rope_row_bf16
                                                         : kernels_.rope_row_f32;
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
      if (params.arena.geometry.dtype == KvDType::kBF16) {
        CopySlot<uint16_t, 2>(params.arena, move);
      } else {
        CopySlot<float, 1>(params.arena, move);
      }
    }
  });
}

void AttentionOps::WriteKvSlot(const KvArena& arena, int64_t slot, const float* k, const float* v) {
  if (arena.geometry.dtype == KvDType::kBF16) {
    WriteSlot<uint16_t, 2>(arena, slot, k, v, [](float x) { return cpu_scalar::F32ToBf16(x); });
  } else {
    WriteSlot<float, 1>(arena, slot, k, v, [](float x) { return x; });
  }
}

void AttentionOps::ReadKvSlot(const KvArena& arena, int64_t slot, float* k, float* v) {
  if (arena.geometry.dtype == KvDType::kBF16) {
    ReadSlot<uint16_t, 2>(arena, slot, k, v, [](uint16_t x) {
      return cpu_scalar::FloatOf1(static_cast<uint32_t>(x) << 16);
    });
  } else {
    ReadSlot<float, 1>(arena, slot, k, v, [](float x) { return x; });
  }
}

}  // namespace headroom::kernels
