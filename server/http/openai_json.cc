#include "server/http/openai_json.h"

#include <cmath>
#include <set>
#include <vector>

namespace headroom::server {
namespace {

// Linear scan that knows strings; returns the offset where nesting exceeds the limit, or npos.
size_t FindTooDeep(std::string_view body) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxBodyDepth) {
        return i;
      }
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return std::string_view::npos;
}

}  // namespace

std::variant<Json, ApiError> ParseJson(std::string_view body) {
  const size_t deep = FindTooDeep(body);
  if (deep != std::string_view::npos) {
    return BadRequest("invalid_json",
                      fmt::format("byte {}: nested deeper than {}", deep, kMaxBodyDepth), "");
  }
  std::vector<std::set<std::string>> keys;
  bool duplicate = false;
  const Json::parser_callback_t watch = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == Json::parse_event_t::key) {
      duplicate |= !keys.back().insert(parsed.get<std::string>()).second;
    }
    return true;
  };
  try {
    Json json = Json::parse(body.begin(), body.end(), watch);
    if (duplicate) {
      return BadRequest("invalid_json", "an object names the same key twice", "");
    }
    return json;
  } catch (const Json::parse_error& error) {
    return BadRequest("invalid_json",
                      fmt::format("byte {}: not valid JSON in UTF-8", error.byte), "");
  } catch (const Json::exception&) {
    return BadRequest("invalid_json", "not valid JSON", "");
  }
}

std::string DumpJson(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

const Json* ObjectReader::Find(const char* name) {
  const auto found = object_.find(name);
  if (found == object_.end()) {
    return nullptr;
  }
  ++num_read_;
  return found->is_null() ? nullptr : &*found;
}

void ObjectReader::Fail(const char* name, const std::string& wanted) {
  const std::string param = prefix_ + name;
  Refuse(BadRequest("invalid_type", fmt::format("{}: wanted {}", param, wanted), param));
}

void ObjectReader::Refuse(ApiError error) {
  if (!error_.has_value()) {
    error_ = std::move(error);
  }
}

void ObjectReader::Read(const char* name, std::optional<double>* out) {
  if (const Json* value = Find(name)) {
    if (!value->is_number()) {
      return Fail(name, "a number");
    }
    *out = value->get<double>();
  }
}

void ObjectReader::Read(const char* name, std::optional<int64_t>* out) {
  const Json* value = Find(name);
  if (value == nullptr) {
    return;
  }
  if (value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX) {
    return Fail(name, "an integer of 64 bits");
  }
  if (value->is_number_integer()) {
    *out = value->get<int64_t>();
    return;
  }
  // 16.0 is an integer to every client that has one number type.
  if (value->is_number_float()) {
    const double number = value->get<double>();
    if (number == std::floor(number) && std::abs(number) < 9e15) {
      *out = static_cast<int64_t>(number);
      return;
    }
  }
  Fail(name, "an integer");
}

void ObjectReader::Read(const char* name, std::optional<bool>* out) {
  if (const Json* value = Find(name)) {
    if (!value->is_boolean()) {
      return Fail(name, "true or false");
    }
    *out = value->get<bool>();
  }
}

void ObjectReader::Read(const char* name, bool* out) {
  std::optional<bool> value;
  Read(name, &value);
  *out = value.value_or(*out);
}

void ObjectReader::Read(const char* name, std::optional<std::string>* out) {
  if (const Json* value = Find(name)) {
    if (!value->is_string()) {
      return Fail(name, "a string");
    }
    *out = value->get<std::string>();
  }
}

}  // namespace headroom::server
