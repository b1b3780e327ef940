#include "kernels/cpu/pack_panel.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/check.h"
#include "kernels/dequantize.h"

namespace headroom::kernels {
namespace {

constexpr int kWordsPerGroup = kGroupCols;  // one 32-bit word per column and step t

uint32_t LoadU32(const uint8_t* bytes) {
  uint32_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

void StoreU32(uint8_t* bytes, uint32_t value) { std::memcpy(bytes, &value, sizeof(value)); }

// Where the parts of a stored block and of a packed one lie.
struct BlockLayout {
  WeightFormat format;
  int min_at;    // in the stored block; the scale is at 0
  int fifth_at;  // fifth bits
  int quants_at;
  int num_words;  // 32-bit words of quants

  explicit BlockLayout(WeightFormat f)
      : format(f),
        min_at(2),
        fifth_at(HasMinimum(f) ? 4 : 2),
        quants_at(fifth_at + (HasFifthBit(f) ? 4 : 0)),
        num_words(f == WeightFormat::kQ8_0 ? 8 : 4) {}
  uint32_t flipped_bits() const { return format == WeightFormat::kQ8_0 ? 0x80808080u : 0u; }
  uint8_t* group(uint8_t* block, int column) const {
    return block + column / kGroupCols * GroupQuantBytes(format);
  }
  uint8_t* scale(uint8_t* block, int column) const {
    return block + kPanelGroups * GroupQuantBytes(format) + 2 * column;
  }
  uint8_t* minimum(uint8_t* block, int column) const {
    return scale(block, column) + 2 * kPanelCols;
  }
};

// Four fifth bits of column c sit in a nibble of byte c / 2 of each word.
void PackFifthBits(uint32_t bits, int column, uint8_t* group) {
  const int c = column % kGroupCols;
  for (int t = 0; t < 8; ++t) {
    const uint32_t four = (bits >> (4 * t)) & 0xfu;
    uint8_t* byte = group + 256 + 8 * t + c / 2;
    *byte = static_cast<uint8_t>(*byte | (four << (4 * (c & 1))));
  }
}

uint32_t UnpackFifthBits(int column, const uint8_t* group) {
  const int c = column % kGroupCols;
  uint32_t bits = 0;
  for (int t = 0; t < 8; ++t) {
    const uint32_t four = (group[256 + 8 * t + c / 2] >> (4 * (c & 1))) & 0xfu;
    bits |= four << (4 * t);
  }
  return bits;
}

void PackBlock(const BlockLayout& layout, const uint8_t* stored, int column, uint8_t* block) {
  uint8_t* group = layout.group(block, column);
  const int c = column % kGroupCols;
  std::memcpy(layout.scale(block, column), stored, 2);
  if (HasMinimum(layout.format)) {
    std::memcpy(layout.minimum(block, column), stored + layout.min_at, 2);
  }
  if (HasFifthBit(layout.format)) {
    PackFifthBits(LoadU32(stored + layout.fifth_at), column, group);
  }
  for (int t = 0; t < layout.num_words; ++t) {
    StoreU32(group + 4 * (t * kWordsPerGroup + c),
             LoadU32(stored + layout.quants_at + 4 * t) ^ layout.flipped_bits());
  }
}

void UnpackBlock(const BlockLayout& layout, uint8_t* block, int column, uint8_t* stored) {
  uint8_t* group = layout.group(block, column);
  const int c = column % kGroupCols;
  std::memcpy(stored, layout.scale(block, column), 2);
  if (HasMinimum(layout.format)) {
    std::memcpy(stored + layout.min_at, layout.minimum(block, column), 2);
  }
  if (HasFifthBit(layout.format)) {
    StoreU32(stored + layout.fifth_at, UnpackFifthBits(column, group));
  }
  for (int t = 0; t < layout.num_words; ++t) {
    StoreU32(stored + layout.quants_at + 4 * t,
             LoadU32(group + 4 * (t * kWordsPerGroup + c)) ^ layout.flipped_bits());
  }
}

const uint8_t* RowOf(const TensorView& tensor, int64_t row) {
  return static_cast<const uint8_t*>(tensor.data) + row * tensor.row_bytes();
}

void PackQuantPanel(const TensorView& tensor, int64_t first_row, int num_rows, WeightFormat format,
                    uint8_t* panel) {
  const BlockLayout layout(format);
  const int stored_bytes = GetDTypeInfo(tensor.dtype).block_bytes;
  const int64_t num_blocks = tensor.cols / kQuantBlock;
  for (int64_t b = 0; b < num_blocks; ++b) {
    uint8_t* block = panel + b * PanelBlockBytes(format);
    for (int column = 0; column < num_rows; ++column) {
      PackBlock(layout, RowOf(tensor, first_row + column) + b * stored_bytes, column, block);
    }
  }
}

float ElementAt(const TensorView& tensor, const uint8_t* row, int64_t col) {
  if (tensor.dtype == DType::kF32) {
    float value;
    std::memcpy(&value, row + 4 * col, sizeof(value));
    return value;
  }
  uint16_t half;
  std::memcpy(&half, row + 2 * col, sizeof(half));
  return tensor.dtype == DType::kF16 ? F16ToFloat(half) : Bf16ToFloat(half);
}

void PackFloatPanel(const TensorView& tensor, int64_t first_row, int num_rows, WeightFormat format,
                    uint8_t* panel) {
  for (int column = 0; column < num_rows; ++column) {
    const uint8_t* row = RowOf(tensor, first_row + column);
    for (int64_t k = 0; k < tensor.cols; ++k) {
      const uint32_t bits = std::bit_cast<uint32_t>(ElementAt(tensor, row, k));
      if (format == WeightFormat::kF32) {
        StoreU32(panel + 4 * (k * kPanelCols + column), bits);
      } else {
        const auto upper = static_cast<uint16_t>(bits >> 16);
        std::memcpy(panel + 2 * ((k / 2 * kPanelCols + column) * 2 + (k & 1)), &upper, 2);
      }
    }
  }
}

bool RowIsExactInBf16(const TensorView& tensor, int64_t row_index) {
  const uint8_t* row = RowOf(tensor, row_index);
  uint32_t lost_bits = 0;
  for (int64_t k = 0; k < tensor.cols; ++k) {
    lost_bits |= std::bit_cast<uint32_t>(ElementAt(tensor, row, k)) & 0xffffu;
  }
  return lost_bits == 0;
}

bool IsExactInBf16(const TensorView& tensor, ThreadPool* pool) {
  constexpr int64_t kRowsPerItem = 64;
  std::atomic<bool> is_exact{true};
  pool->ParallelFor((tensor.rows + kRowsPerItem - 1) / kRowsPerItem, [&](int64_t item, int) {
    const int64_t end = std::min(tensor.rows, (item + 1) * kRowsPerItem);
    for (int64_t row = item * kRowsPerItem; row < end; ++row) {
      if (!is_exact.load(std::memory_order_relaxed)) {
        return;
      }
      if (!RowIsExactInBf16(tensor, row)) {
        is_exact.store(false, std::memory_order_relaxed);
      }
    }
  });
  return is_exact.load();
}

}  // namespace

WeightFormat ChooseFormat(const TensorView& tensor, ThreadPool* pool) {
  switch (tensor.dtype) {
    case DType::kQ4_0:
      return WeightFormat::kQ4_0;
    case DType::kQ4_1:
      return WeightFormat::kQ4_1;
    case DType::kQ5_0:
      return WeightFormat::kQ5_0;
    case DType::kQ5_1:
      return WeightFormat::kQ5_1;
    case DType::kQ8_0:
      return WeightFormat::kQ8_0;
    case DType::kBF16:
      return WeightFormat::kBf16;
    case DType::kF32:
    case DType::kF16:
      return IsExactInBf16(tensor, pool) ? WeightFormat::kBf16 : WeightFormat::kF32;
  }
  return WeightFormat::kF32;
}

void PackPanel(const TensorView& tensor, int64_t first_row, int num_rows, WeightFormat format,
               uint8_t* panel) {
  HEADROOM_CHECK(num_rows >= 1 && num_rows <= kPanelCols);
  if (IsQuantFormat(format)) {
    PackQuantPanel(tensor, first_row, num_rows, format, panel);
  } else {
    PackFloatPanel(tensor, first_row, num_rows, format, panel);
  }
}

void UnpackColumn(const PanelView& panel, DType dtype, int column, int64_t cols, float* out) {
  if (IsQuantFormat(panel.format)) {
    const BlockLayout layout(panel.format);
    uint8_t stored[64];
    for (int64_t b = 0; b < cols / kQuantBlock; ++b) {
      // UnpackBlock only reads the panel; the layout's accessors serve both directions.
      uint8_t* block = const_cast<uint8_t*>(panel.data) + b * PanelBlockBytes(panel.format);
      UnpackBlock(layout, block, column, stored);
      DequantizeRow(dtype, stored, kQuantBlock, out + b * kQuantBlock);
    }
    return;
  }
  for (int64_t k = 0; k < cols; ++k) {
    if (panel.format == WeightFormat::kF32) {
      std::memcpy(out + k, panel.data + 4 * (k * kPanelCols + column), sizeof(float));
    } else {
      uint16_t half;
      std::memcpy(&half, panel.data + 2 * ((k / 2 * kPanelCols + column) * 2 + (k & 1)), 2);
      out[k] = Bf16ToFloat(half);
    }
  }
}

}  // namespace headroom::kernels
