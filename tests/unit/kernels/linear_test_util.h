// Seeded weights, rows and the double-precision oracle of the linear tests.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/tensor_view.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops.h"

namespace headroom::kernels {

// A stored weight matrix.
struct StoredTensor {
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<uint8_t> bytes;

  TensorView view() const { return {bytes.data(), dtype, rows, cols}; }
  std::vector<float> Row(int64_t row) const;  // dequantised
};

// Random values of unit size; F32 and F16 are exact in bf16 when `exact_in_bf16`.
StoredTensor RandomTensor(DType dtype, int64_t rows, int64_t cols, uint64_t seed,
                          bool exact_in_bf16 = false);

// Normal-like values of unit size. [num_rows * cols]
std::vector<float> RandomRows(int64_t num_rows, int64_t cols, uint64_t seed);

// How the backend must see a row for a weight of this kind: int8 blocks, bf16 or as it is.
enum class Core { kQuant, kBf16, kF32 };
Core CoreOf(DType dtype, bool exact_in_bf16);
std::vector<double> ConvertedRow(Core core, const float* row, int64_t cols);

// Backends of all ISAs that this machine runs. [scalar, ...]
std::vector<std::unique_ptr<Backend>> AllBackends(int num_threads);
// Empty, or why some ISA is missing here ("hardware: ..."), for GTEST_SKIP.
std::string MissingIsaMessage();

struct LinearCall {
  std::vector<float> x = {};  // [num_rows, cols]
  int64_t num_rows = 0;
  std::vector<float> norm_weight = {};  // empty: no norm
  LinearEpilogue epilogue = LinearEpilogue::kStore;
  std::vector<float> initial = {};  // what out holds before; empty: zeros
};

// Runs the call on buffers of the backend and returns out [num_rows, output cols].
std::vector<float> RunLinear(Backend& backend, const PackedWeight& weight, const LinearCall& call);

// Equal sizes and equal bits.
bool SameBits(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace headroom::kernels
