#include "server/http/openai_budget.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <string>

#include "server/budget_resolver.h"
#include "server/http/openai_parse.h"

namespace headroom::server {
namespace {

struct IntegerField {
  const char* name;
  std::optional<int64_t> BudgetFields::*member;
};
constexpr IntegerField kIntegerFields[] = {
    {"kv_retention_tokens", &BudgetFields::kv_retention_tokens},
    {"tsp_tokens", &BudgetFields::tsp_tokens},
    {"kv_window", &BudgetFields::kv_window},
    {"kv_window_raw", &BudgetFields::kv_window_raw},
    {"kv_pool_width", &BudgetFields::kv_pool_width},
    {"kv_sink_tokens", &BudgetFields::kv_sink_tokens},
    {"kv_min_prompt", &BudgetFields::kv_min_prompt},
    {"tsp_min_prompt", &BudgetFields::tsp_min_prompt},
};

constexpr IntegerField kRatioFields[] = {
    {"kv_retention", &BudgetFields::kv_retention_ppm},
    {"tsp_ratio", &BudgetFields::tsp_ratio_ppm},
    {"kv_recovery", &BudgetFields::kv_recovery_ppm},
};

struct TextField {
  const char* name;
  std::optional<std::string> BudgetFields::*member;
};
constexpr TextField kTextFields[] = {
    {"kv_policy", &BudgetFields::kv_policy}, {"kv_pool", &BudgetFields::kv_pool},
    {"kv_decode", &BudgetFields::kv_decode}, {"kv_mode", &BudgetFields::kv_mode},
    {"kv_scope", &BudgetFields::kv_scope},
};

struct FlagField {
  const char* name;
  std::optional<bool> BudgetFields::*member;
};
constexpr FlagField kFlagFields[] = {
    {"kv_strict", &BudgetFields::kv_strict},
    {"kv_head_check", &BudgetFields::kv_head_check},
};

ApiError InvalidBudget(const std::string& param, const char* wanted) {
  return BadRequest("invalid_budget", fmt::format("{}: wanted {}", param, wanted), param);
}

constexpr const char* kRatioWanted = "a ratio in (0, 1] with at most six decimal places";

void ReadRatio(ObjectReader& reader, const IntegerField& field, BudgetFields* fields) {
  const Json* value = reader.Find(field.name);
  if (value == nullptr) {
    return;
  }
  const std::optional<int64_t> ppm =
      value->is_number() ? RatioToPpm(value->get<double>()) : std::nullopt;
  if (!ppm.has_value()) {
    return reader.Refuse(InvalidBudget(field.name, kRatioWanted));
  }
  fields->*(field.member) = ppm;
}

// False where a value is neither a bool, a number nor a string.
bool ReadOptions(const Json& options, std::optional<std::vector<PolicyOption>>* out) {
  out->emplace();
  for (const auto& [name, value] : options.items()) {
    PolicyOption& option = (*out)->emplace_back();
    option.name = name;
    if (value.is_boolean()) {
      option.value = value.get<bool>();
    } else if (value.is_number_unsigned() &&
               value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
      option.value = value.get<double>();
    } else if (value.is_number_integer()) {
      option.value = value.get<int64_t>();
    } else if (value.is_number()) {
      option.value = value.get<double>();
    } else if (value.is_string()) {
      option.value = value.get<std::string>();
    } else {
      return false;
    }
  }
  return true;
}

// An integer as text: digits only.
std::optional<int64_t> ParseInteger(const std::string& text) {
  int64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool digits = !text.empty() && text[0] >= '0' && text[0] <= '9';
  if (!digits || parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

// The field that a header names: "x-kv-retention" -> "kv_retention".
std::string FieldOfHeader(const std::string& name) {
  std::string field = name.substr(2);
  std::replace(field.begin(), field.end(), '-', '_');
  return field;
}

std::optional<ApiError> ReadHeader(const std::string& header, const std::string& value,
                                   BudgetFields* fields) {
  const std::string name = FieldOfHeader(header);
  for (const IntegerField& field : kRatioFields) {
    if (name == field.name) {
      fields->*(field.member) = ParseRatioPpm(value);
      return (fields->*(field.member)).has_value()
                 ? std::nullopt
                 : std::optional<ApiError>(InvalidBudget(header, kRatioWanted));
    }
  }
  for (const IntegerField& field : kIntegerFields) {
    if (name == field.name) {
      fields->*(field.member) = ParseInteger(value);
      return (fields->*(field.member)).has_value()
                 ? std::nullopt
                 : std::optional<ApiError>(InvalidBudget(header, "an integer"));
    }
  }
  for (const TextField& field : kTextFields) {
    if (name == field.name) {
      if (value.empty()) {
        return InvalidBudget(header, "a name");
      }
      fields->*(field.member) = value;
      return std::nullopt;
    }
  }
  for (const FlagField& field : kFlagFields) {
    if (name == field.name) {
      if (value != "true" && value != "false") {
        return InvalidBudget(header, "true or false");
      }
      fields->*(field.member) = value == "true";
      return std::nullopt;
    }
  }
  if (name == "kv_options") {
    return InvalidBudget(header, "the body: it is not taken from a header");
  }
  return std::nullopt;
}

}  // namespace

void ReadBudgetBody(ObjectReader& reader, BudgetFields* fields) {
  for (const IntegerField& field : kRatioFields) {
    ReadRatio(reader, field, fields);
  }
  for (const IntegerField& field : kIntegerFields) {
    const Json* value = reader.Find(field.name);
    if (value != nullptr && !value->is_number_integer()) {
      reader.Refuse(InvalidBudget(field.name, "an integer"));
    } else {
      reader.Read(field.name, &(fields->*(field.member)));
    }
  }
  for (const TextField& field : kTextFields) {
    const Json* value = reader.Find(field.name);
    if (value != nullptr && !value->is_string()) {
      reader.Refuse(InvalidBudget(field.name, "a name"));
    } else {
      reader.Read(field.name, &(fields->*(field.member)));
    }
  }
  for (const FlagField& field : kFlagFields) {
    reader.Read(field.name, &(fields->*(field.member)));
  }
  if (const Json* options = reader.Find("kv_options")) {
    if (!options->is_object()) {
      reader.Fail("kv_options", "an object");
    } else if (!ReadOptions(*options, &fields->kv_options)) {
      reader.Refuse(InvalidBudget("kv_options", "true, false, numbers or names as values"));
    }
  }
}

std::variant<BudgetFields, ApiError> ParseBudgetHeaders(
    const std::vector<std::pair<std::string, std::string>>& headers) {
  BudgetFields fields;
  std::set<std::string> seen;
  for (const auto& [name, value] : headers) {
    if (!name.starts_with("x-kv-") && !name.starts_with("x-tsp-")) {
      continue;
    }
    if (!seen.insert(name).second) {
      return InvalidBudget(name, "the header once");
    }
    if (auto error = ReadHeader(name, value, &fields)) {
      return *error;
    }
  }
  return fields;
}

}  // namespace headroom::server
