#include "models/chat_template/value_json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "models/chat_template/printing.h"
#include "models/chat_template/unicode.h"

namespace headroom::models {

namespace {

// Builds the value while the parser reads. Returning false stops it; `error` then says why.
class ValueBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit ValueBuilder(bool from_message) : from_message_(from_message) {}

  bool null() override { return Add(Value::MakeNone()); }
  bool boolean(bool value) override { return Add(Value::Bool(value)); }
  bool number_integer(number_integer_t value) override { return Add(Value::Int(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    return value <= static_cast<uint64_t>(INT64_MAX)
               ? Add(Value::Int(static_cast<int64_t>(value)))
               : Add(Value::Double(static_cast<double>(value)));
  }
  bool number_float(number_float_t value, const string_t&) override {
    return Add(Value::Double(value));
  }
  bool string(string_t& value) override { return Add(MakeString(std::move(value))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return Open(/*is_dict=*/true); }
  bool key(string_t& value) override {
    open_.back().dict.emplace_back(std::move(value), Value());
    return true;
  }
  bool end_object() override {
    ValueDict entries = std::move(open_.back().dict);
    open_.pop_back();
    return Add(MakeDict(std::move(entries), /*template_keys=*/!from_message_));
  }
  bool start_array(std::size_t) override { return Open(/*is_dict=*/false); }
  bool end_array() override {
    ValueList items = std::move(open_.back().list);
    open_.pop_back();
    return Add(Value::List(std::move(items)));
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& exception) override {
    status_ = InvalidArgument("JSON, byte {}: {}", position, exception.what());
    return false;
  }

  const Status& status() const { return status_; }
  Value TakeRoot() { return std::move(root_); }

 private:
  struct Container {
    bool is_dict = false;
    ValueList list;
    ValueDict dict;
  };

  Value MakeString(std::string text) const {
    return from_message_ ? Value::MessageString(std::move(text))
                         : Value::TemplateString(std::move(text));
  }
  bool Open(bool is_dict) {
    if (open_.size() >= static_cast<size_t>(kMaxJsonDepth)) {
      status_ = InvalidArgument("JSON is nested more than {} deep", kMaxJsonDepth);
      return false;
    }
    open_.push_back({is_dict, {}, {}});
    return true;
  }
  bool Add(Value value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().is_dict) {
      open_.back().dict.back().second = std::move(value);
    } else {
      open_.back().list.push_back(std::move(value));
    }
    return true;
  }

  bool from_message_;
  Value root_;
  std::vector<Container> open_;
  Status status_;
};

}  // namespace

StatusOr<Value> ValueFromJson(std::string_view json, bool from_message) {
  ValueBuilder builder(from_message);
  bool done = false;
  try {
    done = nlohmann::json::sax_parse(json.begin(), json.end(), &builder);
  } catch (const std::exception& exception) {
    return InvalidArgument("JSON: {}", exception.what());
  }
  if (!done) {
    HEADROOM_RETURN_IF_ERROR(builder.status());
    return InvalidArgument("JSON: not a document");
  }
  return builder.TakeRoot();
}

namespace jinja {

namespace {

class JsonWriter {
 public:
  JsonWriter(Budget& budget, const JsonStyle& style)
      : budget_(budget),
        style_(style),
        item_separator_(style.item_separator.value_or(style.indent ? "," : ", ")),
        key_separator_(style.key_separator.value_or(": ")) {}

  Status Write(const Value& value, int64_t level);
  std::string Take() { return std::move(out_); }

 private:
  void WriteString(std::string_view text);
  void WriteEscape(uint32_t c);
  Status WriteList(const ValueList& items, int64_t level);
  Status WriteDict(const ValueDict& entries, int64_t level);
  Status Break(int64_t level);

  Budget& budget_;
  const JsonStyle& style_;
  std::string item_separator_;
  std::string key_separator_;
  std::string out_;
};

void JsonWriter::WriteEscape(uint32_t c) {
  if (c > 0xFFFF) {
    c -= 0x10000;
    out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (c >> 10), 0xDC00 + (c & 0x3FF));
  } else {
    out_ += fmt::format("\\u{:04x}", c);
  }
}

void JsonWriter::WriteString(std::string_view text) {
  static constexpr std::string_view kFrom = "\"\\\n\r\t\f\b";
  static constexpr std::string_view kTo = "\"\\nrtfb";
  out_ += '"';
  for (size_t i = 0; i < text.size();) {
    const CodePoint point = CodePointAt(text, i);
    const size_t simple =
        point.value < 0x80 ? kFrom.find(static_cast<char>(point.value)) : std::string::npos;
    if (simple != std::string::npos) {
      out_ += '\\';
      out_ += kTo[simple];
    } else if (point.value < 0x20 || (style_.ensure_ascii && point.value > 0x7E)) {
      WriteEscape(point.value);
    } else {
      out_.append(text.substr(i, point.size));
    }
    i += point.size;
  }
  out_ += '"';
}

// A new line at `level` of nesting, when indenting.
Status JsonWriter::Break(int64_t level) {
  if (!style_.indent) {
    return OkStatus();
  }
  int64_t width = 0;
  if (__builtin_mul_overflow(std::max<int64_t>(*style_.indent, 0), level, &width)) {
    return ResourceExhausted("tojson: an indent of {} is too wide", *style_.indent);
  }
  HEADROOM_RETURN_IF_ERROR(budget_.Allocate(width));
  out_ += '\n';
  out_.append(static_cast<size_t>(width), ' ');
  return OkStatus();
}

Status JsonWriter::WriteList(const ValueList& items, int64_t level) {
  if (items.empty()) {
    out_ += "[]";
    return OkStatus();
  }
  out_ += '[';
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) {
      HEADROOM_RETURN_IF_ERROR(budget_.Allocate(static_cast<int64_t>(item_separator_.size())));
      out_ += item_separator_;
    }
    HEADROOM_RETURN_IF_ERROR(Break(level + 1));
    HEADROOM_RETURN_IF_ERROR(Write(items[i], level + 1));
  }
  HEADROOM_RETURN_IF_ERROR(Break(level));
  out_ += ']';
  return OkStatus();
}

Status JsonWriter::WriteDict(const ValueDict& entries, int64_t level) {
  if (entries.empty()) {
    out_ += "{}";
    return OkStatus();
  }
  std::vector<const ValueDict::value_type*> order;
  order.reserve(entries.size());
  for (const auto& entry : entries) {
    order.push_back(&entry);
  }
  if (style_.sort_keys) {
    std::ranges::sort(order, {},
                      [](const auto* entry) -> const std::string& { return entry->first; });
  }
  out_ += '{';
  for (size_t i = 0; i < order.size(); ++i) {
    HEADROOM_RETURN_IF_ERROR(budget_.Allocate(static_cast<int64_t>(
        item_separator_.size() + key_separator_.size() + order[i]->first.size() + 2)));
    out_ += i > 0 ? item_separator_ : "";
    HEADROOM_RETURN_IF_ERROR(Break(level + 1));
    WriteString(order[i]->first);
    out_ += key_separator_;
    HEADROOM_RETURN_IF_ERROR(Write(order[i]->second, level + 1));
  }
  HEADROOM_RETURN_IF_ERROR(Break(level));
  out_ += '}';
  return OkStatus();
}

// Depth is bounded: values are checked for kMaxValueDepth when made.
Status JsonWriter::Write(const Value& value, int64_t level) {
  HEADROOM_RETURN_IF_ERROR(budget_.Allocate(16));
  if (const ProvenancedText* text = value.text()) {
    HEADROOM_RETURN_IF_ERROR(budget_.Allocate(static_cast<int64_t>(text->text.size())));
    WriteString(text->text);
  } else if (const ListObject* list = value.list()) {
    return WriteList(list->items, level);
  } else if (const DictObject* dict = value.dict()) {
    return WriteDict(dict->entries, level);
  } else if (value.is_none()) {
    out_ += "null";
  } else if (const bool* flag = std::get_if<bool>(&value.data())) {
    out_ += *flag ? "true" : "false";
  } else if (const int64_t* integer = std::get_if<int64_t>(&value.data())) {
    out_ += fmt::format("{}", *integer);
  } else if (const double* real = std::get_if<double>(&value.data())) {
    out_ += std::isnan(*real)   ? "NaN"
            : std::isinf(*real) ? (*real < 0 ? "-Infinity" : "Infinity")
                                : FormatDouble(*real);
  } else if (const auto* undefined = std::get_if<Undefined>(&value.data())) {
    return InvalidArgument("tojson: {}",
                           undefined->why == nullptr ? "a value is undefined" : *undefined->why);
  } else {
    return InvalidArgument("tojson: a namespace or function is not JSON");
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::string> DumpJson(Budget& budget, const Value& value, const JsonStyle& style) {
  JsonWriter writer(budget, style);
  HEADROOM_RETURN_IF_ERROR(writer.Write(value, 0));
  return writer.Take();
}

}  // namespace jinja

}  // namespace headroom::models
