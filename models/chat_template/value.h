// The values a chat template computes with: Jinja's types, strings with provenance.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "models/tokenizer/tokenizer.h"

namespace headroom::models {

struct Undefined {};
struct None {};

class Value;
using ValueList = std::vector<Value>;
using ValueDict = std::vector<std::pair<std::string, Value>>;  // insertion order, unique keys

// A value is cheap to copy: strings, lists and dicts are shared and immutable once built, but for
// Jinja's namespace object, which only the interpreter makes.
class Value {
 public:
  Value() : data_(Undefined{}) {}
  static Value MakeNone() { return Value(Data(None{})); }
  static Value Bool(bool value) { return Value(Data(value)); }
  static Value Int(int64_t value) { return Value(Data(value)); }
  static Value Double(double value) { return Value(Data(value)); }
  // Text that the template wrote (trusted).
  static Value TemplateString(std::string text);
  // Text that came with the request (untrusted): every byte is a message byte.
  static Value MessageString(std::string text);
  static Value String(ProvenancedText text);
  static Value List(ValueList items);
  static Value Dict(ValueDict items);

  using Data = std::variant<Undefined, None, bool, int64_t, double,
                            std::shared_ptr<const ProvenancedText>,
                            std::shared_ptr<const ValueList>, std::shared_ptr<const ValueDict>,
                            std::shared_ptr<struct NamespaceObject>,
                            std::shared_ptr<const struct CallableObject>>;
  explicit Value(Data data) : data_(std::move(data)) {}
  const Data& data() const { return data_; }

  template <typename T>
  bool Is() const {
    return std::holds_alternative<T>(data_);
  }

 private:
  Data data_;
};

}  // namespace headroom::models
