// The linear-algebra entries of the kernel table and the memory formats they share.
//
// Weights lie in panels of 64 output columns (see WeightFormat), activations in rows converted to
// what the weight's core wants. Every output is one accumulation chain in the order of the input
// features, so a row's result does not depend on the rows beside it, and each chain is the same
// sequence of IEEE operations on every ISA: core Q exact integers and two FMAs per block of 32,
// core F the two FMAs of vdpbf16ps per pair of features, core P one FMA per feature. All of it runs
// with denormals flushed (base/flush_denormals.h).
//
// Functions here are static: units of different ISAs must not share code through the linker.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace headroom::kernels {

inline constexpr int kPanelCols = 64;  // output columns of a panel: four groups of 16
inline constexpr int kGroupCols = 16;
inline constexpr int kPanelGroups = kPanelCols / kGroupCols;
inline constexpr int kQuantBlock = 32;  // input features of a block; input widths are padded to it
inline constexpr int kQuantTileRows = 12;  // rows of a QuantTileBlock
inline constexpr int kFloatTileRows = 6;   // rows that cores F and P compute at once

// How a panel stores its weights. Q formats, per block of 32 input features:
//   quants of group 0, 1, 2, 3 | f16 scales [64] | f16 minima [64] (q4_1 and q5_1)
// where the quants of a group are 16 columns x 4 consecutive bytes of the stored block, for t =
// 0..3 (q8_0: 0..7): byte i of column c holds feature 4t + i, with feature 16 + 4t + i in the high
// nibble (q4, q5). q5 adds the fifth bits: a 64-bit word for t = 0..7, whose bit 4c + i belongs to
// feature 4t + i of column c. q8_0 has 128 added to each value. kBf16: per pair of features, 64
// columns x 2 bf16. kF32: per feature, 64 columns.
enum class WeightFormat : uint8_t { kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kBf16, kF32 };

static constexpr bool IsQuantFormat(WeightFormat format) { return format <= WeightFormat::kQ8_0; }
static constexpr bool HasMinimum(WeightFormat format) {
  return format == WeightFormat::kQ4_1 || format == WeightFormat::kQ5_1;
}
static constexpr bool HasFifthBit(WeightFormat format) {
  return format == WeightFormat::kQ5_0 || format == WeightFormat::kQ5_1;
}
// What is subtracted from a stored integer, as a power of two; 0: nothing.
static constexpr int OffsetLog2(WeightFormat format) {
  return format == WeightFormat::kQ4_0   ? 3
         : format == WeightFormat::kQ5_0 ? 4
         : format == WeightFormat::kQ8_0 ? 7
                                         : 0;
}
// Bytes of the quants of one group and block.
static constexpr int GroupQuantBytes(WeightFormat format) {
  return format == WeightFormat::kQ8_0 ? 512 : HasFifthBit(format) ? 256 + 64 : 256;
}
// Bytes of one panel and 32 input features: a multiple of 64.
static constexpr int PanelBlockBytes(WeightFormat format) {
  return format == WeightFormat::kBf16  ? kQuantBlock * kPanelCols * 2
         : format == WeightFormat::kF32 ? kQuantBlock * kPanelCols * 4
                                        : kPanelGroups * GroupQuantBytes(format) +
                                              kPanelCols * 2 * (HasMinimum(format) ? 2 : 1);
}

// Activations of core Q: tiles of 12 rows, each a run of these, one per block of 32 features. A
// value is scale * quant with quant = 256 * high + low, so 16 bits in two signed bytes: one byte
// alone would cost a KL divergence of 3e-3 on a 135M model, two cost nothing that can be measured.
// sum = scale * (sum of the block's quants).
struct alignas(16) QuantTileBlock {
  int8_t highs[kQuantTileRows][kQuantBlock];
  int8_t lows[kQuantTileRows][kQuantBlock];
  float scales[kQuantTileRows];
  float sums[kQuantTileRows];
  int32_t negated_sums[kQuantTileRows];  // -(sum of the block's quants)
};

// Converted rows. Formats that no panel of the weight needs are null.
struct ActivationRows {
  QuantTileBlock* quant = nullptr;  // [ceil(rows / 12), padded_cols / 32]
  uint16_t* bf16 = nullptr;         // [rows, float_stride], features beyond cols zero
  float* f32 = nullptr;             // [rows, float_stride], features beyond cols zero
  int64_t float_stride = 0;         // elements, >= padded_cols
  int64_t padded_cols = 0;          // input features rounded up to 32
};

// Normalises (when asked) and converts rows. Row 0 is the first row of a tile.
struct ConvertRowsParams {
  const float* x = nullptr;  // [num_rows, x_stride]
  int64_t x_stride = 0;
  int64_t num_rows = 0;
  int64_t cols = 0;
  const float* norm_weight = nullptr;  // [cols]; null: no norm
  float norm_eps = 0.0f;
  float* row = nullptr;  // scratch [padded_cols]
  ActivationRows out;
};

struct PanelView {
  const uint8_t* data = nullptr;
  WeightFormat format = WeightFormat::kF32;
  int32_t num_cols = 0;  // valid columns, 1..64
};

// From this many rows on, a quant panel is first unpacked to bytes and f32 factors, one group at a
// time. The bits of the result are the same.
inline constexpr int kUnpackRows = 36;
// Bytes of one unpacked group and block: 8 x 16 columns x 4 bytes, 16 scales, 16 minima.
inline constexpr int kUnpackedBlockBytes = 8 * 64 + 2 * 64;
// Scratch of one thread: two groups of a panel and two of its `up` panel.
static constexpr int64_t UnpackScratchBytes(int64_t padded_cols) {
  return 4 * (padded_cols / kQuantBlock) * kUnpackedBlockBytes;
}

enum class PanelEpilogue : uint8_t { kStore, kAdd, kSiluMul };

// out[row, column of the panel], from converted rows. kSiluMul: `panel` gives the gate and `up`, of
// as many columns, the factor.
struct LinearPanelParams {
  PanelView panel;
  PanelView up;
  PanelEpilogue epilogue = PanelEpilogue::kStore;
  ActivationRows rows;  // row 0 is the first row of a tile
  int64_t num_rows = 0;
  uint8_t* unpack_scratch = nullptr;  // UnpackScratchBytes(padded_cols), aligned to 64
  float* out = nullptr;               // [num_rows, out_stride]
  int64_t out_stride = 0;
};

struct LinearKernels {
  void (*convert_rows)(const ConvertRowsParams& params) = nullptr;
  void (*linear_panel)(const LinearPanelParams& params) = nullptr;
};

}  // namespace headroom::kernels
