// What stands behind a Value: the shared objects of text, lists, dicts, namespaces and callables.
// For the interpreter; others need only value.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "models/chat_template/value.h"

namespace headroom::models {

namespace jinja {
struct Stmt;
struct Frame;
}  // namespace jinja

struct TextObject {
  ProvenancedText text;
  bool markup = false;  // made by `safe` or `escape`: adding plain text to it escapes that text
};

struct ListObject {
  ValueList items;
  bool is_tuple = false;
  int32_t depth = 1;
};

struct DictObject {
  ValueDict entries;
  bool template_keys = false;  // all keys are literals of the template, so trusted
  int32_t depth = 1;
  // Position by key, only for more than a few entries; the keys point into `entries`.
  std::unordered_map<std::string_view, size_t> index;

  // Null when absent.
  const Value* Find(std::string_view key) const;
};

// namespace(...) or the `loop` of a for. It may not be stored in a container or another namespace,
// so no cycle can arise.
struct NamespaceObject {
  std::vector<std::pair<std::string, Value>> attributes;
  std::shared_ptr<const ListObject> loop_items;  // set for `loop` only
  int64_t loop_index = 0;                        // 0-based; `loop` only
};

enum class CallableKind : uint8_t { kMacro, kCaller, kMethod, kGlobal };

// It may not be stored in a container or namespace, so it never outlives `frame`.
struct CallableObject {
  CallableKind kind = CallableKind::kGlobal;
  std::string name;                    // method or global name, macro name
  Value receiver;                      // kMethod: the object
  const jinja::Stmt* macro = nullptr;  // kMacro and kCaller: the definition
  jinja::Frame* frame = nullptr;       // kMacro and kCaller: where it was defined
};

Value MakeText(ProvenancedText text, bool markup);
Value MakeTuple(ValueList items);
// `template_keys`: no key holds a byte of a message.
Value MakeDict(ValueDict entries, bool template_keys);
Value MakeUndefined(std::string why);

}  // namespace headroom::models
