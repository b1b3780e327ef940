#include "models/strict_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "models/file_error.h"

namespace headroom::models {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 64;

// The deepest nesting, brackets in strings not counted. Malformed text gives some number.
int Depth(std::string_view text) {
  int depth = 0;
  int deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

// Receives the parser's events and keeps the keys of the objects that are open.
class KeyChecker final : public nlohmann::json_sax<json> {
 public:
  explicit KeyChecker(const std::string& path) : path_(path) {}
  const Status& status() const { return status_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  bool start_object(size_t) override {
    open_.emplace_back();
    return true;
  }
  bool end_object() override {
    open_.pop_back();
    return true;
  }
  bool key(string_t& key) override {
    if (!open_.back().insert(key).second) {
      status_ =
          InvalidArgument("{}: key \"{}\" appears twice in one JSON object", path_, Printable(key));
      return false;
    }
    return true;
  }
  bool parse_error(size_t position, const std::string&, const json::exception&) override {
    status_ = InvalidArgument("{}: malformed JSON at byte {}", path_, position);
    return false;
  }

 private:
  std::string path_;
  std::vector<std::unordered_set<std::string>> open_;
  Status status_;
};

}  // namespace

Status CheckStrictJson(std::string_view text, const std::string& path) {
  const int depth = Depth(text);
  if (depth > kMaxDepth) {
    return InvalidArgument("{}: JSON nested {} deep, wanted at most {}", path, depth, kMaxDepth);
  }
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos || text[begin] != '{') {
    return InvalidArgument("{}: the JSON is not an object", path);
  }
  KeyChecker checker(path);
  if (!json::sax_parse(text.begin(), text.end(), &checker) && checker.status().ok()) {
    return InvalidArgument("{}: malformed JSON", path);
  }
  return checker.status();
}

}  // namespace headroom::models
