#include "models/tokenizer/unicode.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace headroom::models {
namespace {

constexpr uint32_t kTable[] = {
#include "models/tokenizer/unicode_table.inc"
};
constexpr int kClassBits = 3;
constexpr uint32_t kClassMask = (1u << kClassBits) - 1;

// ASCII, most of all text, without a search.
constexpr std::array<CharClass, 128> MakeAsciiTable() {
  std::array<CharClass, 128> table{};
  size_t entry = 0;
  for (uint32_t c = 0; c < table.size(); ++c) {
    while (entry + 1 < std::size(kTable) && (kTable[entry + 1] >> kClassBits) <= c) {
      ++entry;
    }
    table[c] = static_cast<CharClass>(kTable[entry] & kClassMask);
  }
  return table;
}
constexpr std::array<CharClass, 128> kAscii = MakeAsciiTable();

}  // namespace

CharClass ClassOf(char32_t code_point) {
  if (code_point < kAscii.size()) {
    return kAscii[code_point];
  }
  if (code_point >= 0x110000) {
    return CharClass::kOther;
  }
  // The last entry that starts at or before the code point; the table starts at 0.
  const uint32_t key = (static_cast<uint32_t>(code_point) << kClassBits) | kClassMask;
  const uint32_t* next = std::upper_bound(std::begin(kTable), std::end(kTable), key);
  return static_cast<CharClass>(*(next - 1) & kClassMask);
}

}  // namespace headroom::models
