#include "models/safetensors.h"

#include "models/byte_reader.h"
#include "models/file_error.h"

namespace headroom::models {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;

// Checks one entry against its shape and its place after the tensors before it.
Status CheckEntry(const SafetensorsEntry& entry, uint64_t expected_begin, uint64_t data_bytes,
                  uint64_t data_offset, const std::string& path) {
  const std::string name = Printable(entry.tensor.name);
  if (entry.begin != expected_begin) {
    return FileError(path, data_offset + entry.begin,
                     "tensor \"{}\" begins at {} of the data, wanted {}: tensors {}", name,
                     entry.begin, expected_begin,
                     entry.begin < expected_begin ? "overlap" : "leave a hole");
  }
  if (entry.end < entry.begin || entry.end > data_bytes) {
    return FileError(path, data_offset + entry.begin,
                     "tensor \"{}\" ends at {} of the data, wanted {}..{}", name, entry.end,
                     entry.begin, data_bytes);
  }
  const auto wanted = static_cast<uint64_t>(entry.tensor.view.num_bytes());
  if (entry.end - entry.begin != wanted) {
    return FileError(path, data_offset + entry.begin,
                     "tensor \"{}\" has {} bytes, wanted {} for {} {}", name,
                     entry.end - entry.begin, wanted, ShapeText(entry.tensor.shape),
                     GetDTypeInfo(entry.tensor.view.dtype).name);
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::vector<NamedTensor>> ParseSafetensors(std::span<const uint8_t> bytes,
                                                    const std::string& path) {
  ByteReader reader(bytes);
  uint64_t header_bytes = 0;
  if (!reader.Read(header_bytes)) {
    return FileError(path, 0, "a safetensors file of {} bytes, wanted at least 8", bytes.size());
  }
  std::span<const uint8_t> header;
  if (header_bytes > kMaxHeaderBytes || !reader.Take(header_bytes, header)) {
    return FileError(path, 0, "a header of {} bytes, wanted at most {}", header_bytes,
                     std::min(kMaxHeaderBytes, reader.remaining()));
  }
  if (header.empty() || header[0] != '{') {
    return FileError(path, 8, "the header does not begin with '{{'");
  }
  HEADROOM_ASSIGN_OR_RETURN(
      std::vector<SafetensorsEntry> entries,
      ParseSafetensorsHeader({reinterpret_cast<const char*>(header.data()), header.size()}, path));
  const uint64_t data_offset = reader.offset();
  const uint64_t data_bytes = reader.remaining();
  uint64_t expected_begin = 0;
  std::vector<NamedTensor> tensors;
  tensors.reserve(entries.size());
  for (SafetensorsEntry& entry : entries) {
    HEADROOM_RETURN_IF_ERROR(CheckEntry(entry, expected_begin, data_bytes, data_offset, path));
    expected_begin = entry.end;
    entry.tensor.file_offset = data_offset + entry.begin;
    entry.tensor.view.data = bytes.data() + entry.tensor.file_offset;
    tensors.push_back(std::move(entry.tensor));
  }
  if (expected_begin != data_bytes) {
    return FileError(path, data_offset + expected_begin, "{} bytes after the last tensor",
                     data_bytes - expected_begin);
  }
  return tensors;
}

}  // namespace headroom::models
