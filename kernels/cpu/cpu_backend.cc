#include "kernels/cpu/cpu_backend.h"

#include <cpuid.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "base/check.h"
#include "kernels/cpu/attention_ops.h"
#include "kernels/cpu/linear_ops.h"
#include "kernels/cpu/packed_weight.h"
#include "kernels/cpu/page_memory.h"

namespace headroom::kernels {
namespace {

constexpr int kMaxThreads = 256;

class PageBuffer final : public Buffer {
 public:
  explicit PageBuffer(PageMemory memory) : memory_(std::move(memory)) {}
  void* data() override { return memory_.data(); }
  size_t num_bytes() const override { return memory_.num_bytes(); }

 private:
  PageMemory memory_;
};

// CPUID leaf 7, sub-leaf 1, EAX bit 5: AVX512_BF16.
bool HasAvx512Bf16() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & (1u << 5)) != 0;
}

// The builtins also check that the system saves the wide registers.
bool HasAvx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") &&
         __builtin_cpu_supports("avx512vbmi") && HasAvx512Bf16();
}

// CPUID leaf 1, ECX bit 29: F16C. Leaf 0x80000001, ECX bit 5: LZCNT.
bool HasF16cAndLzcnt() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool has_f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & (1u << 29)) != 0;
  return has_f16c && __get_cpuid(0x80000001u, &eax, &ebx, &ecx, &edx) != 0 &&
         (ecx & (1u << 5)) != 0;
}

bool HasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && HasF16cAndLzcnt();
}

KernelTable Avx512Kernels() {
  return {.isa = "avx512", .linear = LinearKernelsAvx512(), .attention = AttentionKernelsAvx512()};
}
KernelTable Avx2Kernels() {
  return {.isa = "avx2", .linear = LinearKernelsAvx2(), .attention = AttentionKernelsAvx2()};
}
KernelTable ScalarKernels() {
  return {.isa = "scalar", .linear = LinearKernelsScalar(), .attention = AttentionKernelsScalar()};
}

}  // namespace

bool CpuSupportsIsa(std::string_view isa) {
  return isa == "scalar" || (isa == "avx2" && HasAvx2()) || (isa == "avx512" && HasAvx512());
}

CpuBackend::CpuBackend(const KernelTable& kernels, int num_threads)
    : kernels_(kernels),
      pool_(num_threads),
      linear_(std::make_unique<LinearOps>(kernels.linear, &pool_)),
      attention_(std::make_unique<AttentionOps>(kernels_.attention, &pool_)) {}

CpuBackend::~CpuBackend() = default;

StatusOr<std::unique_ptr<Buffer>> CpuBackend::Allocate(size_t num_bytes) {
  HEADROOM_ASSIGN_OR_RETURN(PageMemory memory, PageMemory::Allocate(num_bytes));
  return std::make_unique<PageBuffer>(std::move(memory));
}

Status CpuBackend::ReserveWorkspace(const WorkspaceLimits& limits) {
  HEADROOM_RETURN_IF_ERROR(linear_->ReserveWorkspace(limits.max_rows, limits.max_cols));
  attention_->Reserve(limits);
  return OkStatus();
}

StatusOr<std::unique_ptr<PackedWeight>> CpuBackend::Pack(std::span<const TensorView> parts) {
  HEADROOM_ASSIGN_OR_RETURN(auto weight, CpuPackedWeight::Stack(parts, &arena_, &pool_));
  return std::unique_ptr<PackedWeight>(std::move(weight));
}

StatusOr<std::unique_ptr<PackedWeight>> CpuBackend::PackGateUp(const TensorView& gate,
                                                               const TensorView& up) {
  HEADROOM_ASSIGN_OR_RETURN(auto weight, CpuPackedWeight::GateUp(gate, up, &arena_, &pool_));
  return std::unique_ptr<PackedWeight>(std::move(weight));
}

void CpuBackend::EmbedRows(const EmbedRowsParams& params) { linear_->EmbedRows(params); }

void CpuBackend::Linear(const LinearParams& params) { linear_->Linear(params); }

void CpuBackend::CopyRows(const CopyRowsParams& params) {
  HEADROOM_CHECK(params.src_rows.size() == params.dst_rows.size());
  for (size_t i = 0; i < params.src_rows.size(); ++i) {
    std::memcpy(params.dst + params.dst_rows[i] * params.dst_stride,
                params.src + params.src_rows[i] * params.src_stride,
                static_cast<size_t>(params.width) * sizeof(float));
  }
}

size_t CpuBackend::KvPageBytes(const KvGeometry& geometry) const {
  return AttentionOps::KvPageBytes(geometry);
}

void CpuBackend::RopeStore(const RopeStoreParams& params) { attention_->RopeStore(params); }

void CpuBackend::Attention(const AttentionParams& params) { attention_->Attention(params); }

void CpuBackend::WindowScores(const WindowScoresParams& params) {
  attention_->WindowScores(params);
}

void CpuBackend::ColumnScores(const ColumnScoresParams& params) {
  attention_->ColumnScores(params);
}

void CpuBackend::ClassMasses(const ClassMassesParams& params) { attention_->ClassMasses(params); }

void CpuBackend::SelectTopK(const SelectTopKParams& params) { attention_->SelectTopK(params); }

void CpuBackend::MoveKv(const MoveKvParams& params) { attention_->MoveKv(params); }

void CpuBackend::WriteKvSlot(const KvArena& arena, int64_t slot, const float* k, const float* v) {
  AttentionOps::WriteKvSlot(arena, slot, k, v);
}

void CpuBackend::ReadKvSlot(const KvArena& arena, int64_t slot, float* k, float* v) const {
  AttentionOps::ReadKvSlot(arena, slot, k, v);
}

StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const CpuBackendOptions& options) {
  if (options.num_threads < 0 || options.num_threads > kMaxThreads) {
    return InvalidArgument("cpu backend: got {} threads, want 0 (all available) to {}",
                           options.num_threads, kMaxThreads);
  }
  const std::string& isa = options.isa;
  if (isa != "auto" && isa != "avx512" && isa != "avx2" && isa != "scalar") {
    return InvalidArgument("cpu backend: unknown ISA '{}', want auto, avx512, avx2 or scalar", isa);
  }
  if (isa != "auto" && !CpuSupportsIsa(isa)) {
    return FailedPrecondition("cpu backend: this machine has no {}{}", isa,
                              isa == "avx512" ? " with bf16, vnni and vbmi" : " with FMA and F16C");
  }
  const int num_threads =
      options.num_threads == 0 ? std::min(AvailableCpus(), kMaxThreads) : options.num_threads;
  KernelTable kernels = ScalarKernels();
  if (isa == "avx512" || (isa == "auto" && CpuSupportsIsa("avx512"))) {
    kernels = Avx512Kernels();
  } else if (isa == "avx2" || (isa == "auto" && CpuSupportsIsa("avx2"))) {
    kernels = Avx2Kernels();
  }
  return std::make_unique<CpuBackend>(kernels, num_threads);
}

}  // namespace headroom::kernels
