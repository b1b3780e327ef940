#include "models/chat_template/string_methods.h"

#include <algorithm>

#include "models/chat_template/access.h"
#include "models/chat_template/operators.h"
#include "models/chat_template/provenance.h"
#include "models/chat_template/text_ops.h"
#include "models/chat_template/unicode.h"

namespace headroom::models::jinja {

namespace {

using Method = StatusOr<Value> (*)(Budget&, const Value&, std::string_view, const Args&);

bool IsMarkup(const Value& object) {
  return std::get<std::shared_ptr<const TextObject>>(object.data())->markup;
}

StatusOr<Value> CallStrip(Budget& budget, const Value& object, std::string_view name,
                          const Args& args) {
  HEADROOM_ASSIGN_OR_RETURN(const ValueList bound, BindArgs(name, args, {"chars"}, 0));
  std::optional<std::string_view> chars;
  if (!bound[0].is_undefined() && !bound[0].is_none()) {
    HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText* text, TextArg(name, bound[0]));
    // Each character of the object is looked for in `chars`.
    int64_t work = 0;
    if (__builtin_mul_overflow(static_cast<int64_t>(object.text()->text.size()),
                               static_cast<int64_t>(text->text.size() / 64), &work)) {
      return ResourceExhausted("{}: too much text", name);
    }
    HEADROOM_RETURN_IF_ERROR(budget.Step(work));
    chars = text->text;
  }
  return NewText(budget, Strip(*object.text(), chars, name != "rstrip", name != "lstrip"),
                 IsMarkup(object));
}

StatusOr<Value> CallSplit(Budget& budget, const Value& object, std::string_view name,
                          const Args& args) {
  HEADROOM_ASSIGN_OR_RETURN(const ValueList bound, BindArgs(name, args, {"sep", "maxsplit"}, 0));
  HEADROOM_ASSIGN_OR_RETURN(const int64_t max_splits, IntegerArg(name, bound[1], -1));
  std::optional<std::string_view> separator;
  if (!bound[0].is_undefined() && !bound[0].is_none()) {
    HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText* text, TextArg(name, bound[0]));
    if (text->text.empty()) {
      return InvalidArgument("{}: the separator is empty", name);
    }
    separator = text->text;
  }
  HEADROOM_ASSIGN_OR_RETURN(ValueList pieces,
                            Split(budget, *object.text(), separator, max_splits, name == "rsplit"));
  return NewList(budget, std::move(pieces));
}

StatusOr<Value> CallSplitLines(Budget& budget, const Value& object, std::string_view name,
                               const Args& args) {
  HEADROOM_ASSIGN_OR_RETURN(const ValueList bound, BindArgs(name, args, {"keepends"}, 0));
  HEADROOM_ASSIGN_OR_RETURN(ValueList lines,
                            SplitLines(budget, *object.text(), BoolArg(bound[0], false)));
  return NewList(budget, std::move(lines));
}

StatusOr<Value> CallAffix(Budget& budget, const Value& object, std::string_view name,
                          const Args& args) {
  HEADROOM_ASSIGN_OR_RETURN(const ValueList bound, BindArgs(name, args, {"affix"}, 1));
  const ListObject* several = bound[0].list();
  const ValueList affixes = several == nullptr ? ValueList{bound[0]} : several->items;
  for (const Value& affix : affixes) {
    HEADROOM_RETURN_IF_ERROR(budget.Step());
    HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText* text, TextArg(name, affix));
    const std::string& all = object.text()->text;
    if (name == "startswith" ? all.starts_with(text->text) : all.ends_with(text->text)) {
      return Value::Bool(true);
    }
  }
  return Value::Bool(false);
}

StatusOr<Value> CallRemoveAffix(Budget& budget, const Value& object, std::string_view name,
                                const Args& args) {
  HEADROOM_ASSIGN_OR_RETURN(const ValueList bound, BindArgs(name, args, {"affix"}, 1));
  HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText* affix, TextArg(name, bound[0]));
  const ProvenancedText& text = *object.text();
  const size_t size = text.text.size();
  const size_t cut = affix->text.size();
  if (name == "removeprefix") {
    return text.text.starts_with(affix->text) ? NewText(budget, Slice(text, cut, size)) : object;
  }
  return text.text.ends_with(affix->text) ? NewText(budget, Slice(text, 0, size - cut)) : object;
}

StatusOr<Value> CallCase(Budget& budget, const Value& object, std::string_view name,
                         const Args& args) {
  HEADROOM_RETURN_IF_ERROR(BindArgs(name, args, {}, 0).status());
  HEADROOM_RETURN_IF_ERROR(budget.Allocate(static_cast<int64_t>(object.text()->text.size())));
  const CaseChange change = name == "upper"        ? CaseChange::kUpper
                            : name == "lower"      ? CaseChange::kLower
                            : name == "capitalize" ? CaseChange::kCapitalize
                                                   : CaseChange::kTitle;
  return NewText(budget, ChangeCase(*object.text(), change), IsMarkup(object));
}

StatusOr<Value> CallReplace(Budget& budget, const Value& object, std::string_view name,
                            const Args& args) {
  HEADROOM_ASSIGN_OR_RETURN(const ValueList bound,
                            BindArgs(name, args, {"old", "new", "count"}, 2));
  HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText* from, TextArg(name, bound[0]));
  HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText* to, TextArg(name, bound[1]));
  HEADROOM_ASSIGN_OR_RETURN(const int64_t count, IntegerArg(name, bound[2], -1));
  HEADROOM_ASSIGN_OR_RETURN(ProvenancedText out,
                            Replace(budget, *object.text(), *from, *to, count));
  return NewText(budget, std::move(out));
}

StatusOr<Value> CallJoin(Budget& budget, const Value& object, std::string_view name,
                         const Args& args) {
  HEADROOM_ASSIGN_OR_RETURN(const ValueList bound, BindArgs(name, args, {"items"}, 1));
  HEADROOM_ASSIGN_OR_RETURN(const ValueList items, Iterate(budget, bound[0]));
  HEADROOM_ASSIGN_OR_RETURN(ProvenancedText out, JoinTexts(budget, *object.text(), items));
  return NewText(budget, std::move(out));
}

// find, rfind, index, rindex: positions in code points.
StatusOr<Value> CallFind(Budget& budget, const Value& object, std::string_view name,
                         const Args& args) {
  HEADROOM_ASSIGN_OR_RETURN(const ValueList bound, BindArgs(name, args, {"sub"}, 1));
  HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText* needle, TextArg(name, bound[0]));
  const std::string& text = object.text()->text;
  HEADROOM_RETURN_IF_ERROR(budget.Allocate(static_cast<int64_t>(text.size())));
  size_t at = FindBytes(text, needle->text, 0);
  if (name.starts_with('r') && needle->text.empty()) {
    at = text.size();
  } else if (name.starts_with('r')) {
    for (size_t next = at; next != std::string::npos;
         next = FindBytes(text, needle->text, next + 1)) {
      // Every search starts with work on the needle.
      HEADROOM_RETURN_IF_ERROR(budget.Step(1 + static_cast<int64_t>(needle->text.size() / 64)));
      at = next;
    }
  }
  if (at == std::string::npos) {
    return name.ends_with("index")
               ? StatusOr<Value>(InvalidArgument("{}: the text is not found", name))
               : StatusOr<Value>(Value::Int(-1));
  }
  return Value::Int(CountCodePoints(std::string_view(text).substr(0, at)));
}

StatusOr<Value> CallCount(Budget& budget, const Value& object, std::string_view name,
                          const Args& args) {
  HEADROOM_ASSIGN_OR_RETURN(const ValueList bound, BindArgs(name, args, {"sub"}, 1));
  HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText* needle, TextArg(name, bound[0]));
  const std::string& text = object.text()->text;
  HEADROOM_RETURN_IF_ERROR(budget.Allocate(static_cast<int64_t>(text.size())));
  if (needle->text.empty()) {
    return Value::Int(CountCodePoints(text) + 1);
  }
  int64_t count = 0;
  for (size_t at = FindBytes(text, needle->text, 0); at != std::string::npos;
       at = FindBytes(text, needle->text, at + needle->text.size())) {
    ++count;
  }
  return Value::Int(count);
}

// isdigit and the like: true when there is text and all of it is of the class.
StatusOr<Value> CallClass(Budget& budget, const Value& object, std::string_view name,
                          const Args& args) {
  HEADROOM_RETURN_IF_ERROR(BindArgs(name, args, {}, 0).status());
  const std::string& text = object.text()->text;
  HEADROOM_RETURN_IF_ERROR(budget.Step(static_cast<int64_t>(text.size() / 16)));
  bool all = !text.empty();
  bool any_cased = false;
  for (size_t i = 0; i < text.size() && all;) {
    const CodePoint point = CodePointAt(text, i);
    const uint32_t c = point.value;
    const bool digit = c >= '0' && c <= '9';
    const bool letter = IsCased(c) || (c > 0xFF && IsPrintable(c));  // close to Python's tables
    any_cased = any_cased || IsCased(c);
    all = name == "isspace"   ? IsSpace(c)
          : name == "isdigit" ? digit
          : name == "isalpha" ? letter
          : name == "isalnum" ? digit || letter
          : name == "isupper" ? ToUpper(c) == c
                              : ToLower(c) == c;
    i += point.size;
  }
  const bool needs_case = name == "isupper" || name == "islower";
  return Value::Bool(all && (any_cased || !needs_case));
}

struct NamedMethod {
  std::string_view name;
  Method method;  // null: Python has it, Headroom does not
};

constexpr NamedMethod kMethods[] = {
    {"strip", CallStrip},
    {"lstrip", CallStrip},
    {"rstrip", CallStrip},
    {"split", CallSplit},
    {"rsplit", CallSplit},
    {"splitlines", CallSplitLines},
    {"startswith", CallAffix},
    {"endswith", CallAffix},
    {"removeprefix", CallRemoveAffix},
    {"removesuffix", CallRemoveAffix},
    {"upper", CallCase},
    {"lower", CallCase},
    {"capitalize", CallCase},
    {"title", CallCase},
    {"replace", CallReplace},
    {"join", CallJoin},
    {"find", CallFind},
    {"rfind", CallFind},
    {"index", CallFind},
    {"rindex", CallFind},
    {"count", CallCount},
    {"isdigit", CallClass},
    {"isalpha", CallClass},
    {"isalnum", CallClass},
    {"isspace", CallClass},
    {"isupper", CallClass},
    {"islower", CallClass},
    {"format", nullptr},
    {"format_map", nullptr},
    {"encode", nullptr},
    {"casefold", nullptr},
    {"center", nullptr},
    {"expandtabs", nullptr},
    {"isascii", nullptr},
    {"isdecimal", nullptr},
    {"isidentifier", nullptr},
    {"isnumeric", nullptr},
    {"isprintable", nullptr},
    {"istitle", nullptr},
    {"ljust", nullptr},
    {"maketrans", nullptr},
    {"partition", nullptr},
    {"rjust", nullptr},
    {"rpartition", nullptr},
    {"swapcase", nullptr},
    {"translate", nullptr},
    {"zfill", nullptr},
};

const NamedMethod* FindMethod(std::string_view name) {
  const auto* end = std::end(kMethods);
  const auto* found = std::find_if(std::begin(kMethods), end,
                                   [&](const NamedMethod& entry) { return entry.name == name; });
  return found == end ? nullptr : found;
}

}  // namespace

bool IsStringMethod(std::string_view name) { return FindMethod(name) != nullptr; }

StatusOr<Value> CallStringMethod(Budget& budget, const Value& object, std::string_view name,
                                 const Args& args) {
  const NamedMethod* entry = FindMethod(name);
  if (entry == nullptr || entry->method == nullptr) {
    return InvalidArgument("str.{} is not supported", name);
  }
  return entry->method(budget, object, name, args);
}

StatusOr<ProvenancedText> JoinTexts(Budget& budget, const ProvenancedText& separator,
                                    const ValueList& items) {
  ProvenancedText out;
  for (size_t i = 0; i < items.size(); ++i) {
    HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText* text, TextArg("join", items[i]));
    HEADROOM_RETURN_IF_ERROR(budget.Allocate(MemoryBytes(separator) + MemoryBytes(*text)));
    if (i > 0) {
      AppendText(out, separator);
    }
    AppendText(out, *text);
  }
  return out;
}

}  // namespace headroom::models::jinja
