#include "models/gguf.h"

#include <algorithm>
#include <cstring>

#include "models/byte_reader.h"
#include "models/file_error.h"
#include "models/gguf_parser.h"

namespace headroom::models {
namespace {

template <typename T>
T ReadAt(std::span<const uint8_t> bytes, uint64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

// Element `index` of numbers of `type`, when that is an integer that fits in int64.
std::optional<int64_t> IntAt(GgufType type, std::span<const uint8_t> bytes, uint64_t index) {
  switch (type) {
    case GgufType::kUint8:
      return ReadAt<uint8_t>(bytes, index);
    case GgufType::kInt8:
      return ReadAt<int8_t>(bytes, index);
    case GgufType::kUint16:
      return ReadAt<uint16_t>(bytes, index);
    case GgufType::kInt16:
      return ReadAt<int16_t>(bytes, index);
    case GgufType::kUint32:
      return ReadAt<uint32_t>(bytes, index);
    case GgufType::kInt32:
      return ReadAt<int32_t>(bytes, index);
    case GgufType::kInt64:
      return ReadAt<int64_t>(bytes, index);
    case GgufType::kUint64: {
      const auto value = ReadAt<uint64_t>(bytes, index);
      if (value > static_cast<uint64_t>(INT64_MAX)) {
        return std::nullopt;
      }
      return static_cast<int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> FloatAt(GgufType type, std::span<const uint8_t> bytes, uint64_t index) {
  if (type == GgufType::kFloat32) {
    return ReadAt<float>(bytes, index);
  }
  if (type == GgufType::kFloat64) {
    return ReadAt<double>(bytes, index);
  }
  return std::nullopt;
}

std::string AsString(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string TypeText(const GgufEntry& entry) {
  if (entry.type == GgufType::kArray) {
    return fmt::format("{} x {}", entry.count, GgufTypeName(entry.element_type));
  }
  return GgufTypeName(entry.type);
}

}  // namespace

const char* GgufTypeName(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
      return "u8";
    case GgufType::kInt8:
      return "i8";
    case GgufType::kUint16:
      return "u16";
    case GgufType::kInt16:
      return "i16";
    case GgufType::kUint32:
      return "u32";
    case GgufType::kInt32:
      return "i32";
    case GgufType::kFloat32:
      return "f32";
    case GgufType::kBool:
      return "bool";
    case GgufType::kString:
      return "string";
    case GgufType::kArray:
      return "array";
    case GgufType::kUint64:
      return "u64";
    case GgufType::kInt64:
      return "i64";
    case GgufType::kFloat64:
      return "f64";
  }
  return "?";
}

StatusOr<GgufFile> GgufFile::Parse(std::span<const uint8_t> bytes, const std::string& path) {
  return GgufParser(bytes, path).Parse();
}

const GgufEntry* GgufFile::Find(std::string_view key) const {
  const auto place = std::lower_bound(by_key_.begin(), by_key_.end(), key,
                                      [this](uint32_t index, std::string_view wanted) {
                                        return std::string_view(entries_[index].key) < wanted;
                                      });
  if (place == by_key_.end() || entries_[*place].key != key) {
    return nullptr;
  }
  return &entries_[*place];
}

Status GgufFile::TypeError(const GgufEntry& entry, const char* wanted) const {
  return FileError(path_, entry.file_offset, "metadata \"{}\" is {}, wanted {}",
                   Printable(entry.key), GgufValueText(entry), wanted);
}

StatusOr<std::optional<int64_t>> GgufFile::GetInt(std::string_view key) const {
  const GgufEntry* entry = Find(key);
  if (entry == nullptr) {
    return std::optional<int64_t>();
  }
  const std::optional<int64_t> value = IntAt(entry->type, entry->bytes, 0);
  if (!value.has_value()) {
    return TypeError(*entry, "an integer within 63 bits");
  }
  return value;
}

StatusOr<std::optional<double>> GgufFile::GetFloat(std::string_view key) const {
  const GgufEntry* entry = Find(key);
  if (entry == nullptr) {
    return std::optional<double>();
  }
  const std::optional<double> value = FloatAt(entry->type, entry->bytes, 0);
  if (!value.has_value()) {
    return TypeError(*entry, "a float");
  }
  return value;
}

StatusOr<std::optional<bool>> GgufFile::GetBool(std::string_view key) const {
  const GgufEntry* entry = Find(key);
  if (entry == nullptr) {
    return std::optional<bool>();
  }
  if (entry->type != GgufType::kBool) {
    return TypeError(*entry, "a bool");
  }
  return std::optional<bool>(entry->bytes[0] != 0);
}

StatusOr<std::optional<std::string>> GgufFile::GetString(std::string_view key) const {
  const GgufEntry* entry = Find(key);
  if (entry == nullptr) {
    return std::optional<std::string>();
  }
  if (entry->type != GgufType::kString) {
    return TypeError(*entry, "a string");
  }
  return std::optional<std::string>(AsString(entry->bytes));
}

StatusOr<std::optional<std::vector<std::string>>> GgufFile::GetStrings(std::string_view key) const {
  const GgufEntry* entry = Find(key);
  if (entry == nullptr) {
    return std::optional<std::vector<std::string>>();
  }
  if (entry->type != GgufType::kArray || entry->element_type != GgufType::kString) {
    return TypeError(*entry, "an array of strings");
  }
  std::vector<std::string> strings;
  strings.reserve(entry->count);
  ByteReader reader(entry->bytes);
  for (uint64_t i = 0; i < entry->count; ++i) {
    uint64_t length = 0;
    std::span<const uint8_t> text;
    if (!reader.Read(length) || !reader.Take(length, text)) {
      return TypeError(*entry, "whole strings");
    }
    strings.push_back(AsString(text));
  }
  return std::optional<std::vector<std::string>>(std::move(strings));
}

StatusOr<std::optional<std::vector<float>>> GgufFile::GetFloats(std::string_view key) const {
  const GgufEntry* entry = Find(key);
  if (entry == nullptr) {
    return std::optional<std::vector<float>>();
  }
  if (entry->type != GgufType::kArray ||
      (entry->element_type != GgufType::kFloat32 && entry->element_type != GgufType::kFloat64)) {
    return TypeError(*entry, "an array of floats");
  }
  std::vector<float> values;
  values.reserve(entry->count);
  for (uint64_t i = 0; i < entry->count; ++i) {
    values.push_back(static_cast<float>(*FloatAt(entry->element_type, entry->bytes, i)));
  }
  return std::optional<std::vector<float>>(std::move(values));
}

StatusOr<std::optional<std::vector<int64_t>>> GgufFile::GetInts(std::string_view key) const {
  const GgufEntry* entry = Find(key);
  if (entry == nullptr) {
    return std::optional<std::vector<int64_t>>();
  }
  std::vector<int64_t> values;
  const bool array = entry->type == GgufType::kArray;
  for (uint64_t i = 0; array && i < entry->count; ++i) {
    const std::optional<int64_t> value = IntAt(entry->element_type, entry->bytes, i);
    if (!value.has_value()) {
      return TypeError(*entry, "an array of integers");
    }
    values.push_back(*value);
  }
  if (!array) {
    return TypeError(*entry, "an array of integers");
  }
  return std::optional<std::vector<int64_t>>(std::move(values));
}

std::string GgufValueText(const GgufEntry& entry) {
  if (entry.type == GgufType::kArray) {
    return fmt::format("[{}]", TypeText(entry));
  }
  if (entry.type == GgufType::kString) {
    return fmt::format("\"{}\"", Printable(AsString(entry.bytes)));
  }
  if (entry.type == GgufType::kBool) {
    return entry.bytes[0] != 0 ? "true" : "false";
  }
  if (const std::optional<double> real = FloatAt(entry.type, entry.bytes, 0)) {
    return fmt::format("{} ({})", *real, TypeText(entry));
  }
  if (const std::optional<int64_t> integer = IntAt(entry.type, entry.bytes, 0)) {
    return fmt::format("{} ({})", *integer, TypeText(entry));
  }
  return fmt::format("{} (u64)", ReadAt<uint64_t>(entry.bytes, 0));
}

}  // namespace headroom::models
