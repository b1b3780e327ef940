// A backend that passes every op on; tests override what they watch.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "kernels/ops.h"

namespace headroom::testing {

class ForwardingBackend : public kernels::Backend {
 public:
  explicit ForwardingBackend(std::unique_ptr<kernels::Backend> inner) : inner_(std::move(inner)) {}

  std::string name() const override { return inner_->name(); }
  std::string isa() const override { return inner_->isa(); }
  kernels::KvDType default_kv_dtype() const override { return inner_->default_kv_dtype(); }
  StatusOr<std::unique_ptr<kernels::Buffer>> Allocate(size_t num_bytes) override {
    return inner_->Allocate(num_bytes);
  }
  size_t KvPageBytes(const kernels::KvGeometry& geometry) const override {
    return inner_->KvPageBytes(geometry);
  }
  Status ReserveWorkspace(const kernels::WorkspaceLimits& limits) override {
    return inner_->ReserveWorkspace(limits);
  }
  StatusOr<std::unique_ptr<kernels::PackedWeight>> Pack(
      std::span<const TensorView> parts) override {
    return inner_->Pack(parts);
  }
  StatusOr<std::unique_ptr<kernels::PackedWeight>> PackGateUp(const TensorView& gate,
                                                              const TensorView& up) override {
    return inner_->PackGateUp(gate, up);
  }
  void EmbedRows(const kernels::EmbedRowsParams& params) override { inner_->EmbedRows(params); }
  void Linear(const kernels::LinearParams& params) override { inner_->Linear(params); }
  void RopeStore(const kernels::RopeStoreParams& params) override { inner_->RopeStore(params); }
  void Attention(const kernels::AttentionParams& params) override { inner_->Attention(params); }
  void WindowScores(const kernels::WindowScoresParams& params) override {
    inner_->WindowScores(params);
  }
  void ColumnScores(const kernels::ColumnScoresParams& params) override {
    inner_->ColumnScores(params);
  }
  void ClassMasses(const kernels::ClassMassesParams& params) override {
    inner_->ClassMasses(params);
  }
  void SelectTopK(const kernels::SelectTopKParams& params) override { inner_->SelectTopK(params); }
  void MoveKv(const kernels::MoveKvParams& params) override { inner_->MoveKv(params); }
  void CopyRows(const kernels::CopyRowsParams& params) override { inner_->CopyRows(params); }
  void WriteKvSlot(const kernels::KvArena& arena, int64_t slot, const float* k,
                   const float* v) override {
    inner_->WriteKvSlot(arena, slot, k, v);
  }
  void ReadKvSlot(const kernels::KvArena& arena, int64_t slot, float* k, float* v) const override {
    inner_->ReadKvSlot(arena, slot, k, v);
  }

 private:
  std::unique_ptr<kernels::Backend> inner_;
};

}  // namespace headroom::testing
