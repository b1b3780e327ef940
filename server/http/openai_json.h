// Small helpers over the JSON library for the OpenAI-shaped files of this folder.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "server/api_error.h"

namespace headroom::server {

using Json = nlohmann::ordered_json;

inline constexpr int kMaxBodyDepth = 64;

// Parses a whole body under the limits of openai_parse.h.
std::variant<Json, ApiError> ParseJson(std::string_view body);

// One line of JSON; bytes that are not UTF-8 become U+FFFD, so it cannot throw.
std::string DumpJson(const Json& json);

// Reads the members of one object, noting the first fault. null counts as absent.
class ObjectReader {
 public:
  ObjectReader(const Json& object, std::string prefix)
      : object_(object), prefix_(std::move(prefix)) {}

  const Json* Find(const char* name);
  void Read(const char* name, std::optional<double>* out);
  void Read(const char* name, std::optional<int64_t>* out);
  void Read(const char* name, std::optional<bool>* out);
  void Read(const char* name, std::optional<std::string>* out);
  void Read(const char* name, bool* out);

  void Fail(const char* name, const std::string& wanted);
  void Refuse(ApiError error);
  const std::optional<ApiError>& error() const { return error_; }
  int64_t num_read() const { return num_read_; }

 private:
  const Json& object_;
  std::string prefix_;  // of names in errors: "" or "stream_options."
  std::optional<ApiError> error_;
  int64_t num_read_ = 0;  // members of the object that were asked for
};

}  // namespace headroom::server
