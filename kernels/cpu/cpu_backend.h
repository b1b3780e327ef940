// The embedded CPU backend: kernels of one ISA (AVX-512 with bf16 and VNNI, AVX2, or scalar),
// chosen at run time, on a pool of its own.
//
// Every result is the same bit for bit on every ISA and with any number of threads. Linear layers
// of GGUF's block formats run on 16-bit activations in blocks of 32 (core Q), bf16 weights and
// f32/f16 weights that are all exact in bf16 on bf16 activations (core F), other f32/f16 weights in
// f32 (core P).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/thread_pool.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/page_memory.h"
#include "kernels/ops.h"

namespace headroom::kernels {

class AttentionOps;
class LinearOps;

struct CpuBackendOptions {
  std::string isa = "auto";  // auto, avx512, avx2, scalar
  int num_threads = 0;       // 0: AvailableCpus()
};

// Whether this machine runs the kernels of "avx512", "avx2" or "scalar".
bool CpuSupportsIsa(std::string_view isa);

class CpuBackend final : public Backend {
 public:
  CpuBackend(const KernelTable& kernels, int num_threads);
  ~CpuBackend() override;

  std::string name() const override { return "cpu"; }
  std::string isa() const override { return kernels_.isa; }
  KvDType default_kv_dtype() const override { return KvDType::kBF16; }

  StatusOr<std::unique_ptr<Buffer>> Allocate(size_t num_bytes) override;
  size_t KvPageBytes(const KvGeometry& geometry) const override;
  Status ReserveWorkspace(const WorkspaceLimits& limits) override;

  StatusOr<std::unique_ptr<PackedWeight>> Pack(std::span<const TensorView> parts) override;
  StatusOr<std::unique_ptr<PackedWeight>> PackGateUp(const TensorView& gate,
                                                     const TensorView& up) override;

  void EmbedRows(const EmbedRowsParams& params) override;
  void Linear(const LinearParams& params) override;
  void RopeStore(const RopeStoreParams& params) override;
  void Attention(const AttentionParams& params) override;
  void WindowScores(const WindowScoresParams& params) override;
  void ColumnScores(const ColumnScoresParams& params) override;
  void ClassMasses(const ClassMassesParams& params) override;
  void SelectTopK(const SelectTopKParams& params) override;
  void MoveKv(const MoveKvParams& params) override;
  void CopyRows(const CopyRowsParams& params) override;

  void WriteKvSlot(const KvArena& arena, int64_t slot, const float* k, const float* v) override;
  void ReadKvSlot(const KvArena& arena, int64_t slot, float* k, float* v) const override;

 private:
  KernelTable kernels_;
  ThreadPool pool_;
  PageArena arena_;  // weights
  std::unique_ptr<LinearOps> linear_;
  std::unique_ptr<AttentionOps> attention_;
};

// Fails with a message when the ISA's name is unknown or the machine lacks it.
StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const CpuBackendOptions& options);

}  // namespace headroom::kernels
