// A cursor over the bytes of a file that cannot read past their end.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>

namespace headroom::models {

static_assert(std::endian::native == std::endian::little,
              "model files are little-endian and read in place");

class ByteReader {
 public:
  explicit ByteReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  uint64_t offset() const { return offset_; }
  uint64_t remaining() const { return bytes_.size() - offset_; }

  // Reads one little-endian number; false, reading nothing, when too few bytes are left.
  template <typename T>
  bool Read(T& value) {
    if (remaining() < sizeof(T)) {
      return false;
    }
    std::memcpy(&value, bytes_.data() + offset_, sizeof(T));
    offset_ += sizeof(T);
    return true;
  }

  // Takes `count` bytes; false, taking nothing, when fewer are left.
  bool Take(uint64_t count, std::span<const uint8_t>& out) {
    if (remaining() < count) {
      return false;
    }
    out = bytes_.subspan(offset_, count);
    offset_ += count;
    return true;
  }

 private:
  std::span<const uint8_t> bytes_;
  uint64_t offset_ = 0;
};

}  // namespace headroom::models
