#include "profiler/evaluation/json_lines_json.h"

namespace headroom::profiler {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 8;

// The parser's own recursion is bounded by refusing deep text; strings are skipped.
bool IsTooDeep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      i += c == '\\' ? 1 : 0;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) {
        return true;
      }
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

}  // namespace

Status ForEachJsonLine(std::string_view text, const std::string& source,
                       const JsonLineVisitor& visit) {
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) {
      continue;
    }
    const std::string where = fmt::format("{}:{}", source, number);
    if (IsTooDeep(line)) {
      return InvalidArgument("{}: nested more than {} levels deep", where, kMaxDepth);
    }
    const json value = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (value.is_discarded()) {
      return InvalidArgument("{}: wanted one JSON value a line", where);
    }
    HEADROOM_RETURN_IF_ERROR(visit(value, where));
  }
  return OkStatus();
}

StatusOr<std::vector<int32_t>> ReadIds(const json& value, const std::string& where,
                                       int32_t vocab_size) {
  if (!value.is_array() || value.empty()) {
    return InvalidArgument("{}: wanted a list of token ids", where);
  }
  std::vector<int32_t> ids;
  ids.reserve(value.size());
  for (const json& id : value) {
    if (!id.is_number_integer() || id.get<double>() < 0 || id.get<double>() >= vocab_size) {
      return InvalidArgument("{}: entry {}: wanted a token id from 0 to {}", where, ids.size(),
                             vocab_size - 1);
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

StatusOr<std::vector<int32_t>> ReadIdField(const json& object, const char* name,
                                           const std::string& where, int32_t vocab_size) {
  if (!object.is_object() || !object.contains(name)) {
    return InvalidArgument("{}: wanted an object with a list of token ids \"{}\"", where, name);
  }
  return ReadIds(object[name], fmt::format("{}: {}", where, name), vocab_size);
}

StatusOr<std::string> ReadStringField(const json& object, const char* name,
                                      const std::string& where) {
  if (!object.is_object() || !object.contains(name) || !object[name].is_string()) {
    return InvalidArgument("{}: wanted an object with a string \"{}\"", where, name);
  }
  return object[name].get<std::string>();
}

}  // namespace headroom::profiler
