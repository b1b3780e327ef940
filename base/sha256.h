// SHA-256 (FIPS 180-4): fingerprints of models, tokenizers, prompts and head maps.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace headroom {

// Feed bytes in any pieces, then ask once. Not thread-safe; no errors.
class Sha256 {
 public:
  void Update(std::span<const uint8_t> bytes);
  void Update(std::string_view text);
  // The value as 8 bytes, little-endian, whatever the machine.
  void UpdateInteger(int64_t value);
  // The length as UpdateInteger, then the text: no two lists of texts give the same bytes.
  void UpdateText(std::string_view text);

  // Ends the message; nothing may be called afterwards.
  std::array<uint8_t, 32> Finish();
  std::string FinishText();  // "sha256:" and 64 lower-case hex digits

 private:
  void Compress(const uint8_t* block);  // [64]

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> block_ = {};  // what of the message fills no block yet
  size_t block_bytes_ = 0;
  uint64_t total_bytes_ = 0;
};

std::string Sha256Text(std::string_view text);  // "sha256:<hex>"
// Whether `text` has the form of FinishText.
bool IsSha256Text(std::string_view text);

}  // namespace headroom
