#include "kernels/dequantize.h"

#include <cstring>

namespace headroom::kernels {
namespace {

uint16_t LoadU16(const uint8_t* bytes) {
  uint16_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

uint32_t LoadU32(const uint8_t* bytes) {
  uint32_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// q8_0: f16 scale, 32 int8.
void DecodeQ8_0(const uint8_t* block, float* out) {
  const float scale = F16ToFloat(LoadU16(block));
  for (int i = 0; i < 32; ++i) {
    out[i] = scale * static_cast<float>(static_cast<int8_t>(block[2 + i]));
  }
}

// q4: low nibbles are elements 0..15, high nibbles 16..31.
void DecodeQ4(const uint8_t* nibbles, float scale, int offset, float minimum, float* out) {
  for (int i = 0; i < 16; ++i) {
    out[i] = scale * static_cast<float>((nibbles[i] & 15) - offset) + minimum;
    out[i + 16] = scale * static_cast<float>((nibbles[i] >> 4) - offset) + minimum;
  }
}

// q5: as q4, the fifth bit of element i is bit i of `high`.
void DecodeQ5(const uint8_t* nibbles, uint32_t high, float scale, int offset, float minimum,
              float* out) {
  for (int i = 0; i < 16; ++i) {
    const int low_bit = static_cast<int>((high >> i) & 1u) << 4;
    const int high_bit = static_cast<int>((high >> (i + 16)) & 1u) << 4;
    out[i] = scale * static_cast<float>(((nibbles[i] & 15) | low_bit) - offset) + minimum;
    out[i + 16] = scale * static_cast<float>(((nibbles[i] >> 4) | high_bit) - offset) + minimum;
  }
}

void DecodeBlock(DType dtype, const uint8_t* block, float* out) {
  switch (dtype) {
    case DType::kF32:
      std::memcpy(out, block, sizeof(float));
      return;
    case DType::kF16:
      *out = F16ToFloat(LoadU16(block));
      return;
    case DType::kBF16:
      *out = Bf16ToFloat(LoadU16(block));
      return;
    case DType::kQ8_0:
      DecodeQ8_0(block, out);
      return;
    case DType::kQ4_0:
      DecodeQ4(block + 2, F16ToFloat(LoadU16(block)), 8, 0.0f, out);
      return;
    case DType::kQ4_1:
      DecodeQ4(block + 4, F16ToFloat(LoadU16(block)), 0, F16ToFloat(LoadU16(block + 2)), out);
      return;
    case DType::kQ5_0:
      DecodeQ5(block + 6, LoadU32(block + 2), F16ToFloat(LoadU16(block)), 16, 0.0f, out);
      return;
    case DType::kQ5_1:
      DecodeQ5(block + 8, LoadU32(block + 4), F16ToFloat(LoadU16(block)), 0,
               F16ToFloat(LoadU16(block + 2)), out);
      return;
  }
}

}  // namespace

void DequantizeRow(DType dtype, const void* row, int64_t num_elements, float* out) {
  const DTypeInfo info = GetDTypeInfo(dtype);
  const auto* bytes = static_cast<const uint8_t*>(row);
  for (int64_t i = 0; i < num_elements; i += info.block_size) {
    DecodeBlock(dtype, bytes, out + i);
    bytes += info.block_bytes;
  }
}

}  // namespace headroom::kernels
