// Philox4x32-10: a counter-based generator. The same (key, counter) gives the same numbers on
// every machine and thread, so a sampled token depends on its seed and index alone.
//
// Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011).
#pragma once

#include <array>
#include <cstdint>

namespace headroom {

class Philox {
 public:
  explicit Philox(uint64_t key, uint64_t stream = 0) : key_(key), stream_(stream) {}

  // Four independent uniform 32-bit words for this counter.
  std::array<uint32_t, 4> Block(uint64_t counter) const;

  // Uniform in [0, 1) with 53 bits, a function of (key, stream, counter).
  double Uniform(uint64_t counter) const {
    const std::array<uint32_t, 4> words = Block(counter);
    const uint64_t bits = (static_cast<uint64_t>(words[0]) << 32 | words[1]) >> 11;
    return static_cast<double>(bits) * 0x1p-53;
  }

 private:
  uint64_t key_;
  uint64_t stream_;
};

}  // namespace headroom
