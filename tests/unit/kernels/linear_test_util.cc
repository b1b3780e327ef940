#include "tests/unit/kernels/linear_test_util.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/dequantize.h"

namespace headroom::kernels {
namespace {

// A small generator (splitmix64): the tests need seeds, not quality.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  float Normal() {
    double sum = -6.0;
    for (int i = 0; i < 12; ++i) {
      sum += Uniform();
    }
    return static_cast<float>(sum);
  }

 private:
  uint64_t state_;
};

void PutU16(uint8_t* bytes, uint16_t value) { std::memcpy(bytes, &value, sizeof(value)); }

void FillQuantBlock(DType dtype, Random* random, uint8_t* block) {
  const int num_bytes = GetDTypeInfo(dtype).block_bytes;
  for (int i = 0; i < num_bytes; ++i) {
    block[i] = static_cast<uint8_t>(random->Next());
  }
  const float steps = dtype == DType::kQ8_0                            ? 128.0f
                      : dtype == DType::kQ4_0 || dtype == DType::kQ4_1 ? 8.0f
                                                                       : 16.0f;
  const float scale = (0.5f + static_cast<float>(random->Uniform())) / steps;
  const float sign = random->Uniform() < 0.3 ? -1.0f : 1.0f;
  PutU16(block, FloatToF16(sign * scale));
  if (dtype == DType::kQ4_1 || dtype == DType::kQ5_1) {
    PutU16(block + 2, FloatToF16(-sign * scale * steps * 0.97f));
  }
}

float RoundedToBf16(float value) { return Bf16ToFloat(FloatToBf16(value)); }

}  // namespace

std::vector<float> StoredTensor::Row(int64_t row) const {
  std::vector<float> values(static_cast<size_t>(cols));
  DequantizeRow(dtype, bytes.data() + row * view().row_bytes(), cols, values.data());
  return values;
}

StoredTensor RandomTensor(DType dtype, int64_t rows, int64_t cols, uint64_t seed,
                          bool exact_in_bf16) {
  StoredTensor tensor{dtype, rows, cols, {}};
  tensor.bytes.resize(static_cast<size_t>(rows * RowBytes(dtype, cols)));
  Random random(seed);
  const DTypeInfo info = GetDTypeInfo(dtype);
  uint8_t* element = tensor.bytes.data();
  for (int64_t i = 0; i < rows * cols; i += info.block_size, element += info.block_bytes) {
    if (IsQuantized(dtype)) {
      FillQuantBlock(dtype, &random, element);
      continue;
    }
    const float normal = random.Normal();
    const float value = exact_in_bf16 ? RoundedToBf16(normal) : normal;
    if (dtype == DType::kF32) {
      std::memcpy(element, &value, sizeof(value));
    } else {
      PutU16(element, dtype == DType::kF16 ? FloatToF16(value) : FloatToBf16(value));
    }
  }
  return tensor;
}

std::vector<float> RandomRows(int64_t num_rows, int64_t cols, uint64_t seed) {
  Random random(seed);
  std::vector<float> rows(static_cast<size_t>(num_rows * cols));
  for (float& value : rows) {
    value = random.Normal();
  }
  return rows;
}

Core CoreOf(DType dtype, bool exact_in_bf16) {
  if (IsQuantized(dtype)) {
    return Core::kQuant;
  }
  return dtype == DType::kBF16 || exact_in_bf16 ? Core::kBf16 : Core::kF32;
}

std::vector<double> ConvertedRow(Core core, const float* row, int64_t cols) {
  std::vector<double> converted(row, row + cols);
  if (core == Core::kBf16) {
    for (int64_t k = 0; k < cols; ++k) {
      converted[static_cast<size_t>(k)] = static_cast<double>(RoundedToBf16(row[k]));
    }
  }
  if (core == Core::kQuant) {
    for (int64_t begin = 0; begin < cols; begin += 32) {
      float largest = 0.0f;
      for (int64_t k = begin; k < begin + 32; ++k) {
        largest = std::max(largest, std::fabs(row[k]));
      }
      for (int64_t k = begin; k < begin + 32; ++k) {
        // nearbyint rounds ties to even in the default mode.
        const float quant = largest < 1e-30f ? 0.0f : std::nearbyint(row[k] * (32512.0f / largest));
        converted[static_cast<size_t>(k)] =
            static_cast<double>(largest / 32512.0f) * static_cast<double>(quant);
      }
    }
  }
  return converted;
}

std::vector<std::unique_ptr<Backend>> AllBackends(int num_threads) {
  std::vector<std::unique_ptr<Backend>> backends;
  for (const char* isa : {"scalar", "avx2", "avx512"}) {
    if (CpuSupportsIsa(isa)) {
      auto backend = CreateCpuBackend({.isa = isa, .num_threads = num_threads});
      HEADROOM_CHECK(backend.ok());
      backends.push_back(std::move(backend).value());
    }
  }
  return backends;
}

std::string MissingIsaMessage() {
  for (const char* isa : {"avx2", "avx512"}) {
    if (!CpuSupportsIsa(isa)) {
      return std::string("hardware: this machine has no ") + isa;
    }
  }
  return "";
}

std::vector<float> RunLinear(Backend& backend, const PackedWeight& weight, const LinearCall& call) {
  const int64_t cols = weight.cols();
  const int64_t out_cols =
      call.epilogue == LinearEpilogue::kSiluMul ? weight.rows() / 2 : weight.rows();
  // Strides beyond the widths, so that a kernel that ignores them is caught.
  const int64_t x_stride = cols + 3;
  const int64_t out_stride = out_cols + 5;
  const auto floats = [&backend](int64_t count) {
    auto buffer = backend.Allocate(static_cast<size_t>(std::max<int64_t>(count, 1)) * 4);
    HEADROOM_CHECK(buffer.ok());
    return std::move(buffer).value();
  };
  const auto x = floats(call.num_rows * x_stride);
  const auto norm = floats(cols);
  const auto out = floats(call.num_rows * out_stride);
  std::fill_n(out->floats(), call.num_rows * out_stride, 77.0f);
  for (int64_t r = 0; r < call.num_rows; ++r) {
    std::copy_n(call.x.data() + r * cols, cols, x->floats() + r * x_stride);
    for (int64_t n = 0; n < out_cols; ++n) {
      out->floats()[r * out_stride + n] =
          call.initial.empty() ? 0.0f : call.initial[static_cast<size_t>(r * out_cols + n)];
    }
  }
  std::copy(call.norm_weight.begin(), call.norm_weight.end(), norm->floats());
  backend.Linear({.x = x->floats(),
                  .x_stride = x_stride,
                  .num_rows = call.num_rows,
                  .norm_weight = call.norm_weight.empty() ? nullptr : norm->floats(),
                  .norm_eps = 1e-5f,
                  .weight = &weight,
                  .out = out->floats(),
                  .out_stride = out_stride,
                  .epilogue = call.epilogue});
  std::vector<float> result;
  for (int64_t r = 0; r < call.num_rows; ++r) {
    const float* row = out->floats() + r * out_stride;
    result.insert(result.end(), row, row + out_cols);
    for (int64_t n = out_cols; n < out_stride; ++n) {
      HEADROOM_CHECK(row[n] == 77.0f);  // nothing is written between rows
    }
  }
  return result;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace headroom::kernels
