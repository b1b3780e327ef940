#include "kernels/ref/ref_backend.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "base/check.h"
#include "base/thread_pool.h"
#include "kernels/ref/ref_attention.h"
#include "kernels/ref/ref_column_scores.h"
#include "kernels/ref/ref_kv_page.h"
#include "kernels/ref/ref_linear.h"

namespace headroom::kernels {
namespace {

class HeapBuffer final : public Buffer {
 public:
  HeapBuffer(void* data, size_t num_bytes) : data_(data), num_bytes_(num_bytes) {}
  ~HeapBuffer() override { std::free(data_); }
  void* data() override { return data_; }
  size_t num_bytes() const override { return num_bytes_; }

 private:
  void* data_;  // [num_bytes_]
  size_t num_bytes_;
};

class RefBackend final : public Backend {
 public:
  explicit RefBackend(int num_threads) : pool_(num_threads) {}

  std::string name() const override { return "ref"; }
  std::string isa() const override { return "scalar"; }
  KvDType default_kv_dtype() const override { return KvDType::kF32; }

  StatusOr<std::unique_ptr<Buffer>> Allocate(size_t num_bytes) override {
    const size_t rounded = (num_bytes + 63) / 64 * 64;
    void* data = std::aligned_alloc(64, rounded == 0 ? 64 : rounded);
    if (data == nullptr) {
      return ResourceExhausted("cannot allocate {} bytes", num_bytes);
    }
    std::memset(data, 0, rounded);
    return std::unique_ptr<Buffer>(new HeapBuffer(data, num_bytes));
  }
  size_t KvPageBytes(const KvGeometry& geometry) const override { return ref::PageBytes(geometry); }
  Status ReserveWorkspace(const WorkspaceLimits&) override { return OkStatus(); }

  StatusOr<std::unique_ptr<PackedWeight>> Pack(std::span<const TensorView> parts) override {
    return std::unique_ptr<PackedWeight>(new ref::RefWeight(parts, /*gate_up=*/false));
  }
  StatusOr<std::unique_ptr<PackedWeight>> PackGateUp(const TensorView& gate,
                                                     const TensorView& up) override {
    HEADROOM_CHECK(gate.rows == up.rows && gate.cols == up.cols);
    const TensorView parts[] = {gate, up};
    return std::unique_ptr<PackedWeight>(new ref::RefWeight(parts, /*gate_up=*/true));
  }

  void EmbedRows(const EmbedRowsParams& params) override { ref::EmbedRows(params); }
  void Linear(const LinearParams& params) override { ref::Linear(params, pool_); }
  void RopeStore(const RopeStoreParams& params) override { ref::RopeStore(params); }
  void Attention(const AttentionParams& params) override { ref::Attention(params, pool_); }
  void WindowScores(const WindowScoresParams& params) override { ref::WindowScores(params, pool_); }
  void ColumnScores(const ColumnScoresParams& params) override { ref::ColumnScores(params, pool_); }
  void ClassMasses(const ClassMassesParams& params) override { ref::ClassMasses(params, pool_); }
  void SelectTopK(const SelectTopKParams& params) override { ref::SelectTopK(params); }
  void MoveKv(const MoveKvParams& params) override {
    for (const std::span<const KvMove>& list : params.lists) {
      for (const KvMove& move : list) {
        ref::CopySlot(params.arena, move.src_slot, move.dst_slot);
      }
    }
  }
  void CopyRows(const CopyRowsParams& params) override {
    for (size_t i = 0; i < params.src_rows.size(); ++i) {
      std::memcpy(params.dst + params.dst_rows[i] * params.dst_stride,
                  params.src + params.src_rows[i] * params.src_stride,
                  sizeof(float) * static_cast<size_t>(params.width));
    }
  }
  void WriteKvSlot(const KvArena& arena, int64_t slot, const float* k, const float* v) override {
    ref::StoreSlot(arena, slot, k, v);
  }
  void ReadKvSlot(const KvArena& arena, int64_t slot, float* k, float* v) const override {
    ref::LoadSlot(arena, slot, k, v);
  }

 private:
  ThreadPool pool_;
};

}  // namespace

std::unique_ptr<Backend> CreateRefBackend(int num_threads) {
  return std::make_unique<RefBackend>(num_threads);
}

}  // namespace headroom::kernels
