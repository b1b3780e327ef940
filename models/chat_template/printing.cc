#include "models/chat_template/printing.h"

#include <charconv>
#include <cmath>

#include "models/chat_template/provenance.h"
#include "models/chat_template/unicode.h"

namespace headroom::models::jinja {

namespace {

void AppendQuoted(std::string& out, std::string_view text) {
  const bool double_quotes =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = double_quotes ? '"' : '\'';
  out += quote;
  for (size_t i = 0; i < text.size();) {
    const CodePoint point = CodePointAt(text, i);
    const uint32_t c = point.value;
    if (c == static_cast<uint32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (IsPrintable(c)) {
      out.append(text.substr(i, point.size));
    } else if (c <= 0xFF) {
      out += fmt::format("\\x{:02x}", c);
    } else {
      out += c <= 0xFFFF ? fmt::format("\\u{:04x}", c) : fmt::format("\\U{:08x}", c);
    }
    i += point.size;
  }
  out += quote;
}

Status AppendRepr(Budget& budget, std::string& out, const Value& value);

Status AppendListRepr(Budget& budget, std::string& out, const ListObject& list) {
  out += list.is_tuple ? '(' : '[';
  for (size_t i = 0; i < list.items.size(); ++i) {
    out += i > 0 ? ", " : "";
    HEADROOM_RETURN_IF_ERROR(AppendRepr(budget, out, list.items[i]));
  }
  out += list.is_tuple ? (list.items.size() == 1 ? ",)" : ")") : "]";
  return OkStatus();
}

Status AppendDictRepr(Budget& budget, std::string& out, const ValueDict& entries) {
  out += '{';
  for (size_t i = 0; i < entries.size(); ++i) {
    out += i > 0 ? ", " : "";
    HEADROOM_RETURN_IF_ERROR(budget.Allocate(static_cast<int64_t>(entries[i].first.size())));
    AppendQuoted(out, entries[i].first);
    out += ": ";
    HEADROOM_RETURN_IF_ERROR(AppendRepr(budget, out, entries[i].second));
  }
  out += '}';
  return OkStatus();
}

// Depth is bounded: values are checked for kMaxValueDepth when made.
Status AppendRepr(Budget& budget, std::string& out, const Value& value) {
  HEADROOM_RETURN_IF_ERROR(budget.Allocate(16));
  if (const ProvenancedText* text = value.text()) {
    HEADROOM_RETURN_IF_ERROR(budget.Allocate(static_cast<int64_t>(text->text.size())));
    AppendQuoted(out, text->text);
    return OkStatus();
  }
  if (const ListObject* list = value.list()) {
    return AppendListRepr(budget, out, *list);
  }
  if (const DictObject* dict = value.dict()) {
    return AppendDictRepr(budget, out, dict->entries);
  }
  if (value.is_none()) {
    out += "None";
  } else if (value.is_undefined()) {
    out += "Undefined";
  } else if (const bool* flag = std::get_if<bool>(&value.data())) {
    out += *flag ? "True" : "False";
  } else if (const int64_t* integer = std::get_if<int64_t>(&value.data())) {
    out += fmt::format("{}", *integer);
  } else if (const double* real = std::get_if<double>(&value.data())) {
    out += FormatDouble(*real);
  } else if (const auto* space = std::get_if<std::shared_ptr<NamespaceObject>>(&value.data())) {
    if ((*space)->loop_items != nullptr) {
      return InvalidArgument("'loop' has no text");
    }
    out += "<Namespace ";
    HEADROOM_RETURN_IF_ERROR(AppendDictRepr(budget, out, (*space)->attributes));
    out += '>';
  } else {
    return InvalidArgument("a function or method has no text; is a call missing its '()'?");
  }
  return OkStatus();
}

}  // namespace

std::string FormatDouble(double value) {
  if (std::isnan(value)) {
    return "nan";
  }
  if (std::isinf(value)) {
    return value < 0 ? "-inf" : "inf";
  }
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  std::string out;
  if (text.front() == '-') {
    out += '-';
    text.remove_prefix(1);
  }
  const size_t mark = text.find('e');
  int exponent = 0;
  const size_t sign = text[mark + 1] == '+' ? 1 : 0;
  std::from_chars(text.data() + mark + 1 + sign, text.data() + text.size(), exponent);
  std::string digits(1, text[0]);
  digits += mark > 2 ? text.substr(2, mark - 2) : "";
  const auto count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (count > 1) {
      out += '.';
      out += digits.substr(1);
    }
    return out + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) {
    return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  }
  if (exponent + 1 >= count) {
    return out + digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  }
  const auto point = static_cast<size_t>(exponent + 1);
  return out + digits.substr(0, point) + "." + digits.substr(point);
}

StatusOr<ProvenancedText> ToText(Budget& budget, const Value& value) {
  HEADROOM_RETURN_IF_ERROR(budget.Step());
  if (const ProvenancedText* text = value.text()) {
    HEADROOM_RETURN_IF_ERROR(budget.Allocate(MemoryBytes(*text)));
    return *text;
  }
  if (value.is_undefined()) {
    return ProvenancedText{};
  }
  std::string out;
  HEADROOM_RETURN_IF_ERROR(AppendRepr(budget, out, value));
  return FromMessage(std::move(out));
}

}  // namespace headroom::models::jinja
