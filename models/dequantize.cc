#include "models/dequantize.h"

#include <cstring>

#include "base/check.h"

namespace headroom::models {
namespace {

constexpr int kBlockSize = 32;
constexpr int kHalfBlock = kBlockSize / 2;

uint16_t ReadU16(const uint8_t* data) {
  uint16_t value;
  std::memcpy(&value, data, sizeof(value));
  return value;
}

uint32_t ReadU32(const uint8_t* data) {
  uint32_t value;
  std::memcpy(&value, data, sizeof(value));
  return value;
}

void DequantizePlain(DType dtype, const uint8_t* data, std::span<float> out) {
  if (dtype == DType::kF32) {
    std::memcpy(out.data(), data, out.size_bytes());
    return;
  }
  for (size_t i = 0; i < out.size(); ++i) {
    const uint16_t bits = ReadU16(data + 2 * i);
    out[i] = dtype == DType::kF16 ? F16ToFloat(bits) : Bf16ToFloat(bits);
  }
}

// Where the parts of one block of a 4- or 5-bit format lie, and how its integers are centred.
struct NibbleFormat {
  bool has_minimum;
  bool has_fifth_bit;
  int offset;  // subtracted from the integer
};

NibbleFormat GetNibbleFormat(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
      return {.has_minimum = false, .has_fifth_bit = false, .offset = 8};
    case DType::kQ4_1:
      return {.has_minimum = true, .has_fifth_bit = false, .offset = 0};
    case DType::kQ5_0:
      return {.has_minimum = false, .has_fifth_bit = true, .offset = 16};
    default:
      return {.has_minimum = true, .has_fifth_bit = true, .offset = 0};
  }
}

void DequantizeNibbleBlock(const NibbleFormat& format, const uint8_t* block, float* out) {
  const float scale = F16ToFloat(ReadU16(block));
  block += 2;
  float minimum = 0.0f;
  if (format.has_minimum) {
    minimum = F16ToFloat(ReadU16(block));
    block += 2;
  }
  uint32_t fifth_bits = 0;
  if (format.has_fifth_bit) {
    fifth_bits = ReadU32(block);
    block += 4;
  }
  for (int i = 0; i < kBlockSize; ++i) {
    const int nibble = i < kHalfBlock ? block[i] & 0xf : block[i - kHalfBlock] >> 4;
    const int fifth = static_cast<int>((fifth_bits >> i) & 1u) << 4;
    const float product = scale * static_cast<float>((nibble | fifth) - format.offset);
    out[i] = format.has_minimum ? product + minimum : product;
  }
}

void DequantizeQ8Block(const uint8_t* block, float* out) {
  const float scale = F16ToFloat(ReadU16(block));
  for (int i = 0; i < kBlockSize; ++i) {
    out[i] = scale * static_cast<float>(static_cast<int8_t>(block[2 + i]));
  }
}

}  // namespace

void DequantizeRow(DType dtype, const void* data, std::span<float> out) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  if (!IsQuantized(dtype)) {
    DequantizePlain(dtype, bytes, out);
    return;
  }
  HEADROOM_CHECK(out.size() % kBlockSize == 0);
  const DTypeInfo info = GetDTypeInfo(dtype);
  const NibbleFormat format = GetNibbleFormat(dtype);
  for (size_t begin = 0; begin < out.size(); begin += kBlockSize, bytes += info.block_bytes) {
    if (dtype == DType::kQ8_0) {
      DequantizeQ8Block(bytes, out.data() + begin);
    } else {
      DequantizeNibbleBlock(format, bytes, out.data() + begin);
    }
  }
}

std::vector<float> DequantizeTensor(const TensorView& view) {
  std::vector<float> values(static_cast<size_t>(view.rows * view.cols));
  const auto* data = static_cast<const uint8_t*>(view.data);
  const auto cols = static_cast<size_t>(view.cols);
  for (int64_t row = 0; row < view.rows; ++row) {
    DequantizeRow(view.dtype, data + row * view.row_bytes(),
                  std::span(values).subspan(static_cast<size_t>(row) * cols, cols));
  }
  return values;
}

}  // namespace headroom::models
