#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "models/file_error.h"
#include "models/safetensors.h"
#include "models/strict_json.h"

namespace headroom::models {
namespace {

using nlohmann::json;

constexpr size_t kMaxDims = 4;
constexpr size_t kMaxFileNameBytes = 255;

bool ParseDType(const json& value, DType& dtype) {
  if (value == "F32") {
    dtype = DType::kF32;
  } else if (value == "F16") {
    dtype = DType::kF16;
  } else if (value == "BF16") {
    dtype = DType::kBF16;
  } else {
    return false;
  }
  return true;
}

Status CheckMetadata(const json& metadata, const std::string& path) {
  if (!metadata.is_object()) {
    return InvalidArgument("{}: __metadata__ is a {}, wanted an object", path,
                           metadata.type_name());
  }
  for (const auto& [key, value] : metadata.items()) {
    if (!value.is_string()) {
      return InvalidArgument("{}: __metadata__ \"{}\" is a {}, wanted a string", path,
                             Printable(key), value.type_name());
    }
  }
  return OkStatus();
}

// A natural number that fits in int64, or nothing.
std::optional<int64_t> Natural(const json& value) {
  if (!value.is_number_unsigned()) {
    return std::nullopt;
  }
  const auto number = value.get<uint64_t>();
  if (number > static_cast<uint64_t>(INT64_MAX)) {
    return std::nullopt;
  }
  return static_cast<int64_t>(number);
}

Status ParseShape(const json& shape, NamedTensor& tensor, const std::string& path) {
  if (!shape.is_array() || shape.size() > kMaxDims) {
    return InvalidArgument("{}: tensor \"{}\": shape is no array of at most {} dimensions", path,
                           Printable(tensor.name), kMaxDims);
  }
  for (const json& dim : shape) {
    const std::optional<int64_t> value = Natural(dim);
    if (!value.has_value() || *value == 0) {
      return InvalidArgument("{}: tensor \"{}\": a dimension is no positive integer", path,
                             Printable(tensor.name));
    }
    tensor.shape.push_back(*value);
  }
  if (!SetViewShape(tensor)) {
    return InvalidArgument("{}: tensor \"{}\": shape {} is too large", path, Printable(tensor.name),
                           ShapeText(tensor.shape));
  }
  return OkStatus();
}

StatusOr<SafetensorsEntry> ParseEntry(const std::string& name, const json& value,
                                      const std::string& path) {
  SafetensorsEntry entry;
  entry.tensor.name = name;
  if (!value.is_object() || value.size() != 3 || !value.contains("dtype") ||
      !value.contains("shape") || !value.contains("data_offsets")) {
    return InvalidArgument("{}: tensor \"{}\" wants exactly dtype, shape and data_offsets", path,
                           Printable(name));
  }
  const json& dtype = value["dtype"];
  if (!ParseDType(dtype, entry.tensor.view.dtype)) {
    return InvalidArgument(
        "{}: tensor \"{}\" has dtype {}, wanted F32, F16 or BF16", path, Printable(name),
        dtype.is_string() ? Printable(dtype.get_ref<const std::string&>()) : dtype.type_name());
  }
  HEADROOM_RETURN_IF_ERROR(ParseShape(value["shape"], entry.tensor, path));
  const json& range = value["data_offsets"];
  const bool pair = range.is_array() && range.size() == 2;
  const std::optional<int64_t> begin = pair ? Natural(range[0]) : std::nullopt;
  const std::optional<int64_t> end = pair ? Natural(range[1]) : std::nullopt;
  if (!begin.has_value() || !end.has_value()) {
    return InvalidArgument("{}: tensor \"{}\": data_offsets is no pair of natural numbers", path,
                           Printable(name));
  }
  entry.begin = static_cast<uint64_t>(*begin);
  entry.end = static_cast<uint64_t>(*end);
  return entry;
}

// A file beside the index: no separators, not hidden, not a step up.
bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name.size() <= kMaxFileNameBytes && name[0] != '.' &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return c > 0x20 && c < 0x7f && c != '/' && c != '\\'; });
}

}  // namespace

StatusOr<std::vector<SafetensorsEntry>> ParseSafetensorsHeader(std::string_view text,
                                                               const std::string& path) {
  HEADROOM_RETURN_IF_ERROR(CheckStrictJson(text, path));
  const json header = json::parse(text, nullptr, /*allow_exceptions=*/false);
  std::vector<SafetensorsEntry> entries;
  entries.reserve(header.size());
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      HEADROOM_RETURN_IF_ERROR(CheckMetadata(value, path));
      continue;
    }
    HEADROOM_ASSIGN_OR_RETURN(SafetensorsEntry entry, ParseEntry(name, value, path));
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) { return a.begin < b.begin; });
  return entries;
}

StatusOr<std::map<std::string, std::string>> ParseSafetensorsIndex(std::string_view text,
                                                                   const std::string& path) {
  HEADROOM_RETURN_IF_ERROR(CheckStrictJson(text, path));
  const json index = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto weight_map = index.find("weight_map");
  if (weight_map == index.end() || !weight_map->is_object()) {
    return InvalidArgument("{}: no object \"weight_map\"", path);
  }
  std::map<std::string, std::string> files;
  for (const auto& [name, value] : weight_map->items()) {
    if (!value.is_string() || !IsPlainFileName(value.get_ref<const std::string&>())) {
      return InvalidArgument(
          "{}: weight_map \"{}\" names \"{}\", wanted the plain name of a file beside the index",
          path, Printable(name),
          value.is_string() ? Printable(value.get_ref<const std::string&>()) : value.type_name());
    }
    files.emplace(name, value.get<std::string>());
  }
  return files;
}

}  // namespace headroom::models
