#include "kernels/ref/ref_kv_page.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace headroom::kernels::ref {
namespace {

// Bytes of K or of V of one slot.
int64_t RowBytes(const KvGeometry& geometry) {
  return KvEntryBytes(geometry.dtype, geometry.head_dim) / 2;
}

// Byte address of row `offset` of K (part 0) or V (part 1) of a page.
uint8_t* SlotAddress(const KvArena& arena, int64_t slot, int part) {
  const int64_t page = slot / kPageSize;
  const int64_t offset = slot % kPageSize;
  return static_cast<uint8_t*>(arena.base) + page * static_cast<int64_t>(arena.page_bytes) +
         (part * kPageSize + offset) * RowBytes(arena.geometry);
}

// By KvDType::kInt8: head_dim elements, then their scale.
void StoreInt8Row(int32_t head_dim, const float* values, uint8_t* out) {
  float largest = 0.0f;
  bool is_finite = true;
  for (int32_t dim = 0; dim < head_dim; ++dim) {
    is_finite = is_finite && std::isfinite(values[dim]);
    largest = std::max(largest, std::abs(values[dim]));
  }
  float scale = largest / 127.0f;
  if (!is_finite) {
    scale = std::numeric_limits<float>::quiet_NaN();
  } else if (scale < std::numeric_limits<float>::min()) {
    scale = 0.0f;
  }
  for (int32_t dim = 0; dim < head_dim; ++dim) {
    const auto element =
        static_cast<int8_t>(scale > 0.0f ? std::nearbyint(values[dim] / scale) : 0.0f);
    std::memcpy(out + dim, &element, sizeof(element));
  }
  std::memcpy(out + head_dim, &scale, sizeof(scale));
}

void LoadInt8Row(int32_t head_dim, const uint8_t* bytes, float* out) {
  float scale;
  std::memcpy(&scale, bytes + head_dim, sizeof(scale));
  for (int32_t dim = 0; dim < head_dim; ++dim) {
    out[dim] = static_cast<float>(static_cast<int8_t>(bytes[dim])) * scale;
  }
}

void StoreRow(const KvGeometry& geometry, const float* values, uint8_t* out) {
  if (geometry.dtype == KvDType::kInt8) {
    StoreInt8Row(geometry.head_dim, values, out);
    return;
  }
  if (geometry.dtype == KvDType::kF32) {
    std::memcpy(out, values, sizeof(float) * static_cast<size_t>(geometry.head_dim));
    return;
  }
  for (int32_t dim = 0; dim < geometry.head_dim; ++dim) {
    const uint16_t rounded = FloatToBf16(values[dim]);
    std::memcpy(out + 2 * dim, &rounded, sizeof(rounded));
  }
}

void LoadRow(const KvGeometry& geometry, const uint8_t* bytes, float* out) {
  if (geometry.dtype == KvDType::kInt8) {
    LoadInt8Row(geometry.head_dim, bytes, out);
    return;
  }
  if (geometry.dtype == KvDType::kF32) {
    std::memcpy(out, bytes, sizeof(float) * static_cast<size_t>(geometry.head_dim));
    return;
  }
  for (int32_t dim = 0; dim < geometry.head_dim; ++dim) {
    uint16_t value;
    std::memcpy(&value, bytes + 2 * dim, sizeof(value));
    out[dim] = Bf16ToFloat(value);
  }
}

}  // namespace

size_t PageBytes(const KvGeometry& geometry) {
  return static_cast<size_t>(2 * kPageSize) * static_cast<size_t>(RowBytes(geometry));
}

void StoreSlot(const KvArena& arena, int64_t slot, const float* k, const float* v) {
  StoreRow(arena.geometry, k, SlotAddress(arena, slot, 0));
  StoreRow(arena.geometry, v, SlotAddress(arena, slot, 1));
}

void LoadSlot(const KvArena& arena, int64_t slot, float* k, float* v) {
  LoadRow(arena.geometry, SlotAddress(arena, slot, 0), k);
  LoadRow(arena.geometry, SlotAddress(arena, slot, 1), v);
}

void CopySlot(const KvArena& arena, int64_t src_slot, int64_t dst_slot) {
  if (src_slot == dst_slot) {
    return;
  }
  const auto row_bytes = static_cast<size_t>(RowBytes(arena.geometry));
  for (int part = 0; part < 2; ++part) {
    std::memcpy(SlotAddress(arena, dst_slot, part), SlotAddress(arena, src_slot, part), row_bytes);
  }
}

void GatherHead(const KvArena& arena, const KvHeadView& head, int32_t num_slots,
                std::vector<float>* k, std::vector<float>* v) {
  HEADROOM_CHECK(num_slots <= head.num_slots);
  const auto head_dim = static_cast<size_t>(arena.geometry.head_dim);
  k->resize(static_cast<size_t>(num_slots) * head_dim);
  v->resize(static_cast<size_t>(num_slots) * head_dim);
  for (int32_t slot = 0; slot < num_slots; ++slot) {
    const int64_t id = static_cast<int64_t>(head.pages[slot / kPageSize]) * kPageSize +
                       slot % kPageSize;
    const size_t row = static_cast<size_t>(slot) * head_dim;
    LoadSlot(arena, id, k->data() + row, v->data() + row);
  }
}

}  // namespace headroom::kernels::ref
