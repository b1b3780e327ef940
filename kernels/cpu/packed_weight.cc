#include "kernels/cpu/packed_weight.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kernels/cpu/pack_panel.h"

namespace headroom::kernels {
namespace {

Status CheckParts(std::span<const TensorView> parts) {
  if (parts.empty()) {
    return InvalidArgument("packing a weight: got no tensors, want at least one");
  }
  for (const TensorView& part : parts) {
    if (part.data == nullptr || part.rows < 1 || part.cols < 1) {
      return InvalidArgument("packing a weight: got shape [{}, {}], want at least [1, 1]",
                             part.rows, part.cols);
    }
    if (part.cols != parts[0].cols) {
      return InvalidArgument("packing a weight: got {} and {} input features, want equal numbers",
                             parts[0].cols, part.cols);
    }
    const DTypeInfo info = GetDTypeInfo(part.dtype);
    if (part.cols % info.block_size != 0) {
      return InvalidArgument("packing a weight: {} input features, want a multiple of {} for {}",
                             part.cols, info.block_size, info.name);
    }
  }
  return OkStatus();
}

// One panel to be filled.
struct PanelSource {
  const TensorView* tensor;
  WeightFormat format;
  int64_t first_row;  // of the tensor
  int64_t output_row;
};

int NumCols(const PanelSource& source) {
  return static_cast<int>(std::min<int64_t>(kPanelCols, source.tensor->rows - source.first_row));
}

// Panels of all parts in the order in which they lie in memory.
std::vector<PanelSource> ListPanels(std::span<const TensorView> parts, bool is_gate_up,
                                    ThreadPool* pool) {
  std::vector<PanelSource> sources;
  int64_t output_row = 0;
  for (const TensorView& part : parts) {
    const WeightFormat format = ChooseFormat(part, pool);
    for (int64_t row = 0; row < part.rows; row += kPanelCols) {
      sources.push_back({&part, format, row, is_gate_up ? row : output_row + row});
    }
    output_row += part.rows;
  }
  if (is_gate_up) {
    std::stable_sort(
        sources.begin(), sources.end(),
        [](const PanelSource& a, const PanelSource& b) { return a.first_row < b.first_row; });
  }
  return sources;
}

}  // namespace

StatusOr<std::unique_ptr<CpuPackedWeight>> CpuPackedWeight::Stack(std::span<const TensorView> parts,
                                                                  PageArena* arena,
                                                                  ThreadPool* pool) {
  return Make(parts, /*is_gate_up=*/false, arena, pool);
}

StatusOr<std::unique_ptr<CpuPackedWeight>> CpuPackedWeight::GateUp(const TensorView& gate,
                                                                   const TensorView& up,
                                                                   PageArena* arena,
                                                                   ThreadPool* pool) {
  if (gate.rows != up.rows) {
    return InvalidArgument("packing gate and up: got {} and {} rows, want equal numbers", gate.rows,
                           up.rows);
  }
  const TensorView parts[] = {gate, up};
  return Make(parts, /*is_gate_up=*/true, arena, pool);
}

StatusOr<std::unique_ptr<CpuPackedWeight>> CpuPackedWeight::Make(std::span<const TensorView> parts,
                                                                 bool is_gate_up, PageArena* arena,
                                                                 ThreadPool* pool) {
  HEADROOM_RETURN_IF_ERROR(CheckParts(parts));
  std::unique_ptr<CpuPackedWeight> weight(new CpuPackedWeight);
  weight->is_gate_up_ = is_gate_up;
  weight->cols_ = parts[0].cols;
  weight->padded_cols_ = (weight->cols_ + kQuantBlock - 1) / kQuantBlock * kQuantBlock;
  for (const TensorView& part : parts) {
    weight->rows_ += part.rows;
  }
  const std::vector<PanelSource> sources = ListPanels(parts, is_gate_up, pool);
  size_t num_bytes = 0;
  for (const PanelSource& source : sources) {
    num_bytes += PanelBytes(source.format, weight->padded_cols_);
  }
  HEADROOM_ASSIGN_OR_RETURN(weight->memory_, arena->Take(num_bytes));
  uint8_t* data = weight->memory_.data;
  for (const PanelSource& source : sources) {
    weight->panels_.push_back({.view = {data, source.format, NumCols(source)},
                               .dtype = source.tensor->dtype,
                               .first_row = source.output_row});
    data += PanelBytes(source.format, weight->padded_cols_);
    weight->needs_quant_ |= IsQuantFormat(source.format);
    weight->needs_bf16_ |= source.format == WeightFormat::kBf16;
    weight->needs_f32_ |= source.format == WeightFormat::kF32;
  }
  uint8_t* const base = weight->memory_.data;
  pool->ParallelFor(static_cast<int64_t>(sources.size()), [&](int64_t i, int) {
    const PanelSource& source = sources[static_cast<size_t>(i)];
    const PanelView& view = weight->panels_[static_cast<size_t>(i)].view;
    PackPanel(*source.tensor, source.first_row, view.num_cols, source.format,
              base + (view.data - base));
  });
  return weight;
}

void CpuPackedWeight::UnpackRow(int64_t row, float* out) const {
  HEADROOM_CHECK(!is_gate_up_ && row >= 0 && row < rows_);
  const auto after =
      std::upper_bound(panels_.begin(), panels_.end(), row,
                       [](int64_t value, const Panel& panel) { return value < panel.first_row; });
  const Panel& panel = *(after - 1);
  UnpackColumn(panel.view, panel.dtype, static_cast<int>(row - panel.first_row), cols_, out);
}

}  // namespace headroom::kernels
