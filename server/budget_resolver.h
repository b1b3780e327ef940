// Which budget a request gets: sources in order (body, then header), defaults, bounds, refusals.
//
// Pure functions; design/wire.md "Budgets on the wire" and design/kv-cache.md section 1 decide.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/kv/budget.h"
#include "engine/kv/policy.h"
#include "server/api_error.h"
#include "server/generation_request.h"

namespace headroom::server {

struct ResolvedBudget {
  engine::KvPolicySpec spec;  // what the engine applies
  // What was asked, field by field, as it goes into the receipt: name and JSON-ready text of the
  // value, and where it came from ("body", "header", "default").
  struct Field {
    std::string name;
    std::string value_text;  // a JSON literal
    std::string source;
  };
  std::vector<Field> asked;
  // Settings that only this policy reads, as applied: name ("kv_recovery", or a member of
  // kv_options) and JSON literal.
  std::optional<std::string> applied_recovery;
  std::vector<std::pair<std::string, std::string>> applied_options;
  std::vector<std::string> reasons;  // known before prefill: no_head_map, budget_conflict, floor
};

// `prompt_tokens` decides short prompts under kv_strict.
std::variant<ResolvedBudget, ApiError> ResolveBudget(const BudgetFields& body,
                                                     const BudgetFields& header,
                                                     const engine::KvPolicyRegistry& policies,
                                                     int64_t prompt_tokens);

// A ratio as text ("0.2") to parts per million: a finite decimal with at most six places, nothing
// else around it. Nothing when malformed.
std::optional<int64_t> ParseRatioPpm(std::string_view text);
// A ratio as a JSON number; nothing when it has more than six decimal places.
std::optional<int64_t> RatioToPpm(double value);
// Parts per million (>= 0) as the shortest decimal: "0.2", "0.000001", "1".
std::string RatioText(int64_t ppm);

}  // namespace headroom::server
