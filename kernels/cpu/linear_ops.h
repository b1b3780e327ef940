// Linear layers of the CPU backend: splits the work over the pool and calls the ISA's kernels.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "base/thread_pool.h"
#include "kernels/cpu/linear_kernels.h"
#include "kernels/cpu/packed_weight.h"
#include "kernels/cpu/page_memory.h"
#include "kernels/ops.h"

namespace headroom::kernels {

class LinearOps {
 public:
  // `pool` outlives this object.
  LinearOps(const LinearKernels& kernels, ThreadPool* pool);

  // Scratch for calls of up to `max_rows` rows and `max_cols` input features.
  Status ReserveWorkspace(int64_t max_rows, int64_t max_cols);

  // A call beyond what was reserved allocates.
  void Linear(const LinearParams& params);
  void EmbedRows(const EmbedRowsParams& params);

 private:
  ActivationRows ScratchRows(const CpuPackedWeight& weight) const;
  void ConvertRows(const LinearParams& params, const ActivationRows& rows);
  void MultiplyPanels(const LinearParams& params, const CpuPackedWeight& weight,
                      const ActivationRows& rows);

  const LinearKernels kernels_;
  ThreadPool* const pool_;
  int64_t max_rows_ = 0;
  int64_t max_cols_ = 0;
  PageMemory quant_;   // [row tiles, max_cols / 32] QuantTileBlock
  PageMemory bf16_;    // [max_rows, max_cols + padding]
  PageMemory f32_;     // [max_rows, max_cols + padding]
  PageMemory unpack_;  // [threads, UnpackScratchBytes(max_cols)]
  PageMemory row_;     // [threads, max_cols + padding], a normalised row
};

}  // namespace headroom::kernels
