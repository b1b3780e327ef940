// Filters that make text of text.
#include "models/chat_template/access.h"
#include "models/chat_template/filters.h"
#include "models/chat_template/operators.h"
#include "models/chat_template/printing.h"
#include "models/chat_template/provenance.h"
#include "models/chat_template/text_ops.h"

namespace headroom::models::jinja {

const FilterEntry* FindFilter(std::string_view name) {
  for (const auto find : {FindTextFilter, FindValueFilter, FindSequenceFilter, FindSelectFilter}) {
    if (const FilterEntry* entry = find(name)) {
      return entry;
    }
  }
  return nullptr;
}

namespace {

bool IsMarkup(const Value& value) {
  const auto* text = std::get_if<std::shared_ptr<const TextObject>>(&value.data());
  return text != nullptr && (*text)->markup;
}

StatusOr<Value> FilterTrim(Budget& budget, std::string_view name, const Value& value,
                           const Args& args) {
  HEADROOM_ASSIGN_OR_RETURN(const ValueList bound, BindArgs(name, args, {"chars"}, 0));
  HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText text, ToText(budget, value));
  std::optional<std::string_view> chars;
  if (!bound[0].is_undefined() && !bound[0].is_none()) {
    HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText* given, TextArg(name, bound[0]));
    chars = given->text;
    int64_t work = 0;
    if (__builtin_mul_overflow(static_cast<int64_t>(text.text.size()),
                               static_cast<int64_t>(chars->size() / 64), &work)) {
      return ResourceExhausted("{}: too much text", name);
    }
    HEADROOM_RETURN_IF_ERROR(budget.Step(work));
  }
  return NewText(budget, Strip(text, chars, true, true), IsMarkup(value));
}

StatusOr<Value> FilterCase(Budget& budget, std::string_view name, const Value& value,
                           const Args& args) {
  HEADROOM_RETURN_IF_ERROR(BindArgs(name, args, {}, 0).status());
  HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText text, ToText(budget, value));
  const CaseChange change = name == "upper"        ? CaseChange::kUpper
                            : name == "lower"      ? CaseChange::kLower
                            : name == "capitalize" ? CaseChange::kCapitalize
                                                   : CaseChange::kFilterTitle;
  return NewText(budget, ChangeCase(text, change), IsMarkup(value));
}

StatusOr<Value> FilterReplace(Budget& budget, std::string_view name, const Value& value,
                              const Args& args) {
  HEADROOM_ASSIGN_OR_RETURN(const ValueList bound,
                            BindArgs(name, args, {"old", "new", "count"}, 2));
  HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText text, ToText(budget, value));
  HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText from, ToText(budget, bound[0]));
  HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText to, ToText(budget, bound[1]));
  HEADROOM_ASSIGN_OR_RETURN(const int64_t count, IntegerArg(name, bound[2], -1));
  HEADROOM_ASSIGN_OR_RETURN(ProvenancedText out, Replace(budget, text, from, to, count));
  return NewText(budget, std::move(out));
}

StatusOr<Value> FilterString(Budget& budget, std::string_view name, const Value& value,
                             const Args& args) {
  HEADROOM_RETURN_IF_ERROR(BindArgs(name, args, {}, 0).status());
  if (value.text() != nullptr) {
    return value;
  }
  HEADROOM_ASSIGN_OR_RETURN(ProvenancedText text, ToText(budget, value));
  return NewText(budget, std::move(text));
}

StatusOr<Value> FilterSafe(Budget& budget, std::string_view name, const Value& value,
                           const Args& args) {
  HEADROOM_RETURN_IF_ERROR(BindArgs(name, args, {}, 0).status());
  HEADROOM_ASSIGN_OR_RETURN(ProvenancedText text, ToText(budget, value));
  return NewText(budget, std::move(text), /*markup=*/true);
}

// `escape` leaves markup alone; `forceescape` does not.
StatusOr<Value> FilterEscape(Budget& budget, std::string_view name, const Value& value,
                             const Args& args) {
  HEADROOM_RETURN_IF_ERROR(BindArgs(name, args, {}, 0).status());
  if (IsMarkup(value) && name != "forceescape") {
    return value;
  }
  HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText text, ToText(budget, value));
  return NewText(budget, EscapeHtml(text), /*markup=*/true);
}

StatusOr<Value> FilterIndent(Budget& budget, std::string_view name, const Value& value,
                             const Args& args) {
  HEADROOM_ASSIGN_OR_RETURN(const ValueList bound,
                            BindArgs(name, args, {"width", "first", "blank"}, 0));
  HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText text, ToText(budget, value));
  ProvenancedText width;
  if (bound[0].text() != nullptr) {
    width = *bound[0].text();
  } else {
    HEADROOM_ASSIGN_OR_RETURN(const int64_t spaces, IntegerArg(name, bound[0], 4));
    HEADROOM_RETURN_IF_ERROR(budget.Allocate(std::max<int64_t>(spaces, 0)));
    width = FromMessage(std::string(static_cast<size_t>(std::max<int64_t>(spaces, 0)), ' '));
  }
  HEADROOM_ASSIGN_OR_RETURN(
      ProvenancedText out,
      Indent(budget, text, width, BoolArg(bound[1], false), BoolArg(bound[2], false)));
  return NewText(budget, std::move(out));
}

StatusOr<Value> FilterJoin(Budget& budget, std::string_view name, const Value& value,
                           const Args& args) {
  HEADROOM_ASSIGN_OR_RETURN(const ValueList bound, BindArgs(name, args, {"d", "attribute"}, 0));
  HEADROOM_ASSIGN_OR_RETURN(const ValueList items, Iterate(budget, value));
  HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText separator, ToText(budget, bound[0]));
  const bool by_attribute = !bound[1].is_undefined() && !bound[1].is_none();
  ProvenancedText out;
  for (size_t i = 0; i < items.size(); ++i) {
    Value item = items[i];
    if (by_attribute) {
      HEADROOM_ASSIGN_OR_RETURN(item, GetPath(budget, items[i], bound[1]));
    }
    HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText text, ToText(budget, item));
    HEADROOM_RETURN_IF_ERROR(budget.Allocate(MemoryBytes(separator)));
    if (i > 0) {
      AppendText(out, separator);
    }
    AppendText(out, text);
  }
  return NewText(budget, std::move(out));
}

constexpr FilterEntry kFilters[] = {
    {"trim", FilterTrim},     {"upper", FilterCase},         {"lower", FilterCase},
    {"title", FilterCase},    {"capitalize", FilterCase},    {"replace", FilterReplace},
    {"string", FilterString}, {"safe", FilterSafe},          {"escape", FilterEscape},
    {"e", FilterEscape},      {"forceescape", FilterEscape}, {"indent", FilterIndent},
    {"join", FilterJoin},
};

}  // namespace

const FilterEntry* FindTextFilter(std::string_view name) { return FindIn(kFilters, name); }

}  // namespace headroom::models::jinja
