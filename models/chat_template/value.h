// The values a chat template computes with: Jinja's types, strings with provenance.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "models/tokenizer/tokenizer.h"

namespace headroom::models {

struct Undefined {
  std::shared_ptr<const std::string> why;  // what a use of it says; null: "a value is undefined"
};
struct None {};

class Value;
using ValueList = std::vector<Value>;
using ValueDict = std::vector<std::pair<std::string, Value>>;  // insertion order, unique keys

struct TextObject;       // a string with provenance
struct ListObject;       // a list or tuple
struct DictObject;       // a dict with string keys
struct NamespaceObject;  // Jinja's namespace() and loop: the only mutable values
struct CallableObject;   // a macro, a bound method or a global function

// A value is cheap to copy: strings, lists and dicts are shared and immutable once built, but for
// Jinja's namespace object, which only the interpreter makes. Safe to read from any thread.
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
  // Keys count as message bytes. Of entries with the same key the last value stands, in the first
  // one's place.
  static Value Dict(ValueDict items);

  using Data =
      std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const TextObject>,
                   std::shared_ptr<const ListObject>, std::shared_ptr<const DictObject>,
                   std::shared_ptr<NamespaceObject>, std::shared_ptr<const CallableObject>>;
  explicit Value(Data data) : data_(std::move(data)) {}
  const Data& data() const { return data_; }

  template <typename T>
  bool Is() const {
    return std::holds_alternative<T>(data_);
  }

  bool is_undefined() const { return Is<Undefined>(); }
  bool is_none() const { return Is<None>(); }
  // Null when the value is of another type. The pointer lives as long as this value.
  const ProvenancedText* text() const;
  const ListObject* list() const;
  const DictObject* dict() const;

  // Levels of lists and dicts below and including this value: 0 for scalars and text. Computed
  // when built, so that no walk over a value can go deeper than was checked.
  int32_t depth() const;

 private:
  Data data_;
};

}  // namespace headroom::models
