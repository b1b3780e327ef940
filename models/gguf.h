// GGUF files, versions 2 and 3: metadata and tensor table.
//
// The reader trusts nothing: every count is bounded by the bytes left, every size is checked for
// overflow, names are unique, tensor data is aligned, in range, without overlap or gap. Errors say
// "PATH: offset N: reason". Arrays and strings stay in the file's bytes, so that memory does not
// grow with what a header claims. Source: the format's specification (ggml-org/ggml docs/gguf.md).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "models/named_tensor.h"

namespace headroom::models {

// The numbers are the file's.
enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

const char* GgufTypeName(GgufType type);

// One metadata entry. `bytes` lie in the file: the number, the string without its length, or an
// array's elements (each string with its 8-byte length before it).
struct GgufEntry {
  std::string key;
  GgufType type = GgufType::kUint8;
  GgufType element_type = GgufType::kUint8;  // arrays only; never kArray
  uint64_t count = 1;                        // arrays: elements
  uint64_t file_offset = 0;                  // of `bytes`
  std::span<const uint8_t> bytes;
};

class GgufFile {
 public:
  // Reads the table of contents. `bytes` must outlive the result; `path` is for errors.
  static StatusOr<GgufFile> Parse(std::span<const uint8_t> bytes, const std::string& path);

  const std::string& path() const { return path_; }
  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }
  const std::vector<GgufEntry>& entries() const { return entries_; }    // in file order
  const std::vector<NamedTensor>& tensors() const { return tensors_; }  // in file order

  const GgufEntry* Find(std::string_view key) const;  // null when absent

  // Typed access: nullopt when the key is absent, an error when its type or range does not fit.
  // Integers of any width are accepted where an integer is wanted, f32 and f64 where a float is.
  StatusOr<std::optional<int64_t>> GetInt(std::string_view key) const;
  StatusOr<std::optional<double>> GetFloat(std::string_view key) const;
  StatusOr<std::optional<bool>> GetBool(std::string_view key) const;
  StatusOr<std::optional<std::string>> GetString(std::string_view key) const;
  StatusOr<std::optional<std::vector<std::string>>> GetStrings(std::string_view key) const;
  StatusOr<std::optional<std::vector<float>>> GetFloats(std::string_view key) const;
  StatusOr<std::optional<std::vector<int64_t>>> GetInts(std::string_view key) const;

 private:
  friend class GgufParser;
  Status TypeError(const GgufEntry& entry, const char* wanted) const;

  std::string path_;
  uint32_t version_ = 0;
  uint64_t alignment_ = 32;
  std::vector<GgufEntry> entries_;
  std::vector<NamedTensor> tensors_;
  std::vector<uint32_t> by_key_;  // indices of entries_, ordered by key
};

// One line a value, for inspection: "32 (u32)", "[49152 x string]", a string cut at 80 bytes.
std::string GgufValueText(const GgufEntry& entry);

}  // namespace headroom::models
