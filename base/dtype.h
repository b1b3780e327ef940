// Element types of weights, activations and KV, and the scalar conversions between them.
//
// Block formats follow GGUF: 32 elements a block. bf16 and f16 travel as uint16_t.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace headroom {

enum class DType : uint8_t { kF32, kF16, kBF16, kQ8_0, kQ4_0, kQ4_1, kQ5_0, kQ5_1 };

struct DTypeInfo {
  const char* name;     // lower case: "f32", "q4_1"
  int32_t block_size;   // elements a block; 1 for plain types
  int32_t block_bytes;  // bytes a block
};

constexpr DTypeInfo GetDTypeInfo(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return {"f32", 1, 4};
    case DType::kF16:
      return {"f16", 1, 2};
    case DType::kBF16:
      return {"bf16", 1, 2};
    case DType::kQ8_0:
      return {"q8_0", 32, 34};
    case DType::kQ4_0:
      return {"q4_0", 32, 18};
    case DType::kQ4_1:
      return {"q4_1", 32, 20};
    case DType::kQ5_0:
      return {"q5_0", 32, 22};
    case DType::kQ5_1:
      return {"q5_1", 32, 24};
  }
  return {"?", 1, 0};
}

constexpr bool IsQuantized(DType dtype) { return GetDTypeInfo(dtype).block_size > 1; }

// Bytes of one row of `num_elements`, a multiple of the block size.
constexpr int64_t RowBytes(DType dtype, int64_t num_elements) {
  const DTypeInfo info = GetDTypeInfo(dtype);
  return num_elements / info.block_size * info.block_bytes;
}

inline float Bf16ToFloat(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

// Round to nearest even; NaN stays NaN (quiet).
inline uint16_t FloatToBf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return static_cast<uint16_t>((bits >> 16) | 0x40u);
  }
  bits += 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<uint16_t>(bits >> 16);
}

inline float F16ToFloat(uint16_t value) {
  const uint32_t sign = static_cast<uint32_t>(value & 0x8000u) << 16;
  const uint32_t exponent = (value >> 10) & 0x1fu;
  const uint32_t mantissa = value & 0x3ffu;
  if (exponent == 0x1fu) {
    return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  }
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

// Round to nearest even, overflow to infinity.
uint16_t FloatToF16(float value);

}  // namespace headroom
