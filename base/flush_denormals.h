// Flush denormals to zero: a part of the numeric contract of kernels/ (FTZ and DAZ on x86).
#pragma once

#include <cstdint>

namespace headroom {

// The control bits of this thread's floating-point unit. x86-64: MXCSR; elsewhere AArch64's FPCR.
#if defined(__x86_64__)
inline uint64_t FloatControl() { return __builtin_ia32_stmxcsr(); }
inline void SetFloatControl(uint64_t bits) { __builtin_ia32_ldmxcsr(static_cast<uint32_t>(bits)); }
inline constexpr uint64_t kFlushDenormalsBits = 0x8040;  // FTZ (bit 15) and DAZ (bit 6)
#elif defined(__aarch64__)
inline uint64_t FloatControl() { return __builtin_aarch64_get_fpcr(); }
inline void SetFloatControl(uint64_t bits) {
  __builtin_aarch64_set_fpcr(static_cast<uint32_t>(bits));
}
inline constexpr uint64_t kFlushDenormalsBits = uint64_t{1} << 24;  // FZ: inputs and results
#endif

// Sets the bits for the calling thread and puts back what it found when it goes out of scope.
class ScopedFlushDenormals {
 public:
  ScopedFlushDenormals() : saved_(FloatControl()) { SetFloatControl(saved_ | kFlushDenormalsBits); }
  ~ScopedFlushDenormals() { SetFloatControl(saved_); }
  ScopedFlushDenormals(const ScopedFlushDenormals&) = delete;
  ScopedFlushDenormals& operator=(const ScopedFlushDenormals&) = delete;

 private:
  uint64_t saved_;
};

}  // namespace headroom
