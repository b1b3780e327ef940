// Weights of the CPU backend: panels of 64 output columns in the formats of linear_kernels.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/tensor_view.h"
#include "base/thread_pool.h"
#include "kernels/cpu/linear_kernels.h"
#include "kernels/cpu/page_memory.h"
#include "kernels/ops.h"

namespace headroom::kernels {

class CpuPackedWeight final : public PackedWeight {
 public:
  struct Panel {
    PanelView view;
    DType dtype = DType::kF32;  // what was packed
    int64_t first_row = 0;      // of the weight: the output column of the panel's column 0
  };

  // Stacks parts by rows; each starts a new panel. The memory comes from `arena`, the
  // conversion runs on `pool`.
  static StatusOr<std::unique_ptr<CpuPackedWeight>> Stack(std::span<const TensorView> parts,
                                                          PageArena* arena, ThreadPool* pool);
  // Panels alternate: gate, up, gate, up, ... and first_row counts the rows of one of the two.
  static StatusOr<std::unique_ptr<CpuPackedWeight>> GateUp(const TensorView& gate,
                                                           const TensorView& up, PageArena* arena,
                                                           ThreadPool* pool);

  int64_t rows() const override { return rows_; }
  int64_t cols() const override { return cols_; }
  size_t num_bytes() const override { return memory_.num_bytes; }

  bool is_gate_up() const { return is_gate_up_; }
  int64_t padded_cols() const { return padded_cols_; }
  std::span<const Panel> panels() const { return panels_; }
  // Which activation formats the panels need.
  bool needs_quant() const { return needs_quant_; }
  bool needs_bf16() const { return needs_bf16_; }
  bool needs_f32() const { return needs_f32_; }

  // The exact values of row `row`, as kernels/dequantize.h defines them. out[cols]
  void UnpackRow(int64_t row, float* out) const;

 private:
  CpuPackedWeight() = default;
  static StatusOr<std::unique_ptr<CpuPackedWeight>> Make(std::span<const TensorView> parts,
                                                         bool is_gate_up, PageArena* arena,
                                                         ThreadPool* pool);

  int64_t rows_ = 0;
  int64_t cols_ = 0;
  int64_t padded_cols_ = 0;
  bool is_gate_up_ = false;
  bool needs_quant_ = false;
  bool needs_bf16_ = false;
  bool needs_f32_ = false;
  std::vector<Panel> panels_;
  PageSlice memory_;
};

}  // namespace headroom::kernels
