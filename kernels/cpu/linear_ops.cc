#include "kernels/cpu/linear_ops.h"

#include <algorithm>

#include "base/check.h"

namespace headroom::kernels {
namespace {

// Rows of floats are this much longer than needed, so that rows of a power-of-two width do not all
// fall into the same cache set.
constexpr int64_t kRowPadding = 32;
// Converted rows that one pass over the panels reads should stay in L2.
constexpr int64_t kRowBlockBytes = 768 << 10;
constexpr int64_t kItemsPerThread = 8;

constexpr int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }
constexpr int64_t CeilDiv(int64_t value, int64_t unit) { return (value + unit - 1) / unit; }

int64_t FloatStride(int64_t padded_cols) { return padded_cols + kRowPadding; }

// The same rows from `row` on, a multiple of the tile's rows.
ActivationRows RowsFrom(const ActivationRows& rows, int64_t row) {
  ActivationRows from = rows;
  if (rows.quant != nullptr) {
    from.quant = rows.quant + row / kQuantTileRows * (rows.padded_cols / kQuantBlock);
  }
  if (rows.bf16 != nullptr) {
    from.bf16 = rows.bf16 + row * rows.float_stride;
  }
  if (rows.f32 != nullptr) {
    from.f32 = rows.f32 + row * rows.float_stride;
  }
  return from;
}

PanelEpilogue ToPanelEpilogue(LinearEpilogue epilogue) {
  switch (epilogue) {
    case LinearEpilogue::kStore:
      return PanelEpilogue::kStore;
    case LinearEpilogue::kAdd:
      return PanelEpilogue::kAdd;
    case LinearEpilogue::kSiluMul:
      return PanelEpilogue::kSiluMul;
  }
  return PanelEpilogue::kStore;
}

// How rows and panels are cut into items. Neither changes a result.
struct WorkSplit {
  int64_t rows_per_item;    // a multiple of the tile's rows
  int64_t panels_per_item;  // panels, or pairs of gate and up
  int64_t num_row_items;
  int64_t num_panel_items;
};

WorkSplit SplitWork(int64_t num_rows, int64_t num_panels, const CpuPackedWeight& weight,
                    int num_threads) {
  const int64_t row_bytes =
      weight.padded_cols() * ((weight.needs_quant() ? 3 : 0) + (weight.needs_bf16() ? 2 : 0) +
                              (weight.needs_f32() ? 4 : 0));
  int64_t rows = std::max<int64_t>(kQuantTileRows, kRowBlockBytes / row_bytes);
  int64_t panels = 1;
  if (num_threads > 1) {
    const int64_t wanted_items = kItemsPerThread * num_threads;
    const int64_t row_items = CeilDiv(wanted_items, num_panels);
    rows = std::min(rows, RoundUp(CeilDiv(num_rows, row_items), 4 * kQuantTileRows));
    // Long weight streams of few rows: several panels an item keep each thread's stream sequential.
    panels = std::clamp<int64_t>(num_panels / (4 * wanted_items), 1, 16);
  }
  rows = std::max<int64_t>(kQuantTileRows, rows / kQuantTileRows * kQuantTileRows);
  return {rows, panels, CeilDiv(num_rows, rows), CeilDiv(num_panels, panels)};
}

}  // namespace

LinearOps::LinearOps(const LinearKernels& kernels, ThreadPool* pool)
    : kernels_(kernels), pool_(pool) {}

Status LinearOps::ReserveWorkspace(int64_t max_rows, int64_t max_cols) {
  constexpr int64_t kLimit = int64_t{1} << 24;
  if (max_rows < 0 || max_cols < 0 || max_rows > kLimit || max_cols > kLimit) {
    return InvalidArgument("workspace of {} rows and {} columns, want at most {} of each", max_rows,
                           max_cols, kLimit);
  }
  max_rows = std::max(max_rows, max_rows_);
  max_cols = RoundUp(std::max(max_cols, max_cols_), kQuantBlock);
  const int64_t num_tiles = CeilDiv(max_rows, kQuantTileRows);
  const auto tile_bytes = static_cast<size_t>(max_cols / kQuantBlock) * sizeof(QuantTileBlock);
  const auto row_elements = static_cast<size_t>(FloatStride(max_cols));
  const auto num_rows = static_cast<size_t>(max_rows);
  HEADROOM_ASSIGN_OR_RETURN(quant_,
                            PageMemory::Allocate(static_cast<size_t>(num_tiles) * tile_bytes));
  HEADROOM_ASSIGN_OR_RETURN(bf16_,
                            PageMemory::Allocate(num_rows * row_elements * sizeof(uint16_t)));
  HEADROOM_ASSIGN_OR_RETURN(f32_, PageMemory::Allocate(num_rows * row_elements * sizeof(float)));
  const auto num_threads = static_cast<size_t>(pool_->num_threads());
  const auto unpack_bytes = static_cast<size_t>(UnpackScratchBytes(max_cols));
  HEADROOM_ASSIGN_OR_RETURN(unpack_, PageMemory::Allocate(num_threads * unpack_bytes));
  HEADROOM_ASSIGN_OR_RETURN(row_, PageMemory::Allocate(num_threads * row_elements * sizeof(float)));
  max_rows_ = max_rows;
  max_cols_ = max_cols;
  return OkStatus();
}

ActivationRows LinearOps::ScratchRows(const CpuPackedWeight& weight) const {
  ActivationRows rows;
  rows.padded_cols = weight.padded_cols();
  rows.float_stride = FloatStride(weight.padded_cols());
  if (weight.needs_quant()) {
    rows.quant = reinterpret_cast<QuantTileBlock*>(quant_.data());
  }
  if (weight.needs_bf16()) {
    rows.bf16 = reinterpret_cast<uint16_t*>(bf16_.data());
  }
  if (weight.needs_f32()) {
    rows.f32 = reinterpret_cast<float*>(f32_.data());
  }
  return rows;
}

void LinearOps::ConvertRows(const LinearParams& params, const ActivationRows& rows) {
  auto* scratch = reinterpret_cast<float*>(row_.data());
  pool_->ParallelFor(CeilDiv(params.num_rows, kQuantTileRows), [&](int64_t tile, int thread) {
    const int64_t row = tile * kQuantTileRows;
    kernels_.convert_rows({.x = params.x + row * params.x_stride,
                           .x_stride = params.x_stride,
                           .num_rows = std::min<int64_t>(kQuantTileRows, params.num_rows - row),
                           .cols = params.weight->cols(),
                           .norm_weight = params.norm_weight,
                           .norm_eps = params.norm_eps,
                           .row = scratch + thread * FloatStride(max_cols_),
                           .out = RowsFrom(rows, row)});
  });
}

void LinearOps::MultiplyPanels(const LinearParams& params, const CpuPackedWeight& weight,
                               const ActivationRows& rows) {
  const std::span<const CpuPackedWeight::Panel> panels = weight.panels();
  const int64_t panels_per_output = weight.is_gate_up() ? 2 : 1;
  const int64_t num_panels = static_cast<int64_t>(panels.size()) / panels_per_output;
  const WorkSplit split = SplitWork(params.num_rows, num_panels, weight, pool_->num_threads());
  pool_->ParallelFor(split.num_row_items * split.num_panel_items, [&](int64_t item, int thread) {
    const int64_t row = item / split.num_panel_items * split.rows_per_item;
    const int64_t begin = item % split.num_panel_items * split.panels_per_item;
    const int64_t end = std::min(num_panels, begin + split.panels_per_item);
    for (int64_t i = begin; i < end; ++i) {
      const auto& panel = panels[static_cast<size_t>(i * panels_per_output)];
      LinearPanelParams p;
      p.panel = panel.view;
      if (weight.is_gate_up()) {
        p.up = panels[static_cast<size_t>(2 * i + 1)].view;
      }
      p.epilogue = ToPanelEpilogue(params.epilogue);
      p.rows = RowsFrom(rows, row);
      p.num_rows = std::min(split.rows_per_item, params.num_rows - row);
      p.unpack_scratch = unpack_.data() + thread * UnpackScratchBytes(max_cols_);
      p.out = params.out + row * params.out_stride + panel.first_row;
      p.out_stride = params.out_stride;
      kernels_.linear_panel(p);
    }
  });
}

void LinearOps::Linear(const LinearParams& params) {
  HEADROOM_CHECK(params.weight != nullptr && params.num_rows >= 0);
  const auto& weight = static_cast<const CpuPackedWeight&>(*params.weight);
  HEADROOM_CHECK(weight.is_gate_up() == (params.epilogue == LinearEpilogue::kSiluMul));
  if (params.num_rows == 0) {
    return;
  }
  if (params.num_rows > max_rows_ || weight.cols() > max_cols_) {
    HEADROOM_CHECK(ReserveWorkspace(params.num_rows, weight.cols()).ok());
  }
  const ActivationRows rows = ScratchRows(weight);
  ConvertRows(params, rows);
  MultiplyPanels(params, weight, rows);
}

void LinearOps::EmbedRows(const EmbedRowsParams& params) {
  const auto& weight = static_cast<const CpuPackedWeight&>(*params.weight);
  pool_->ParallelFor(static_cast<int64_t>(params.ids.size()), [&](int64_t i, int) {
    weight.UnpackRow(params.ids[static_cast<size_t>(i)], params.out + i * weight.cols());
  });
}

}  // namespace headroom::kernels
