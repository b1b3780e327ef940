// The parser behind GgufFile::Parse, in its own class so that each step is short.
#pragma once

#include <string>
#include <string_view>
#include <unordered_set>

#include "models/byte_reader.h"
#include "models/gguf.h"

namespace headroom::models {

class GgufParser {
 public:
  GgufParser(std::span<const uint8_t> bytes, const std::string& path);
  StatusOr<GgufFile> Parse();

 private:
  Status ParseHeader();
  Status ParseEntry();
  Status ParseValue(GgufEntry& entry);
  Status ParseArray(GgufEntry& entry);
  Status ParseString(const char* what, uint64_t max_bytes, std::span<const uint8_t>& out);
  Status ParseAlignment();
  Status ParseTensorInfo();
  Status ParseShape(NamedTensor& tensor);
  Status PlaceTensors();
  Status Truncated(const char* what) const;

  std::span<const uint8_t> bytes_;
  ByteReader reader_;
  GgufFile file_;
  uint64_t num_tensors_ = 0;
  uint64_t num_entries_ = 0;
  // Keys and names read so far; the views point into bytes_.
  std::unordered_set<std::string_view> keys_;
  std::unordered_set<std::string_view> names_;
};

}  // namespace headroom::models
