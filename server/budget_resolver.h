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
  std::string head_map;  // the hash of the map that the policy spends by; empty: none
  std::vector<std::pair<std::string, std::string>> applied_options;
  std::vector<std::string> reasons;  // known before prefill: no_head_map, budget_conflict, floor
};

// What a request's budget depends on of the server's head map.
struct HeadMapInfo {
  std::string hash;
  int64_t theta_ppm = 0;        // kv_recovery where the request names none
  int64_t profiled_tokens = 0;  // length of the profile's prompts; 0: not known
  bool other_weights = false;   // kv_head_check is always on
};

// `prompt_tokens` decides short prompts under kv_strict. `head_map`: null where the registry has no
// `adaptive`. Prompts of more than four times its profiled length run with kv_head_check.
std::variant<ResolvedBudget, ApiError> ResolveBudget(const BudgetFields& body,
                                                     const BudgetFields& header,
                                                     const engine::KvPolicyRegistry& policies,
                                                     int64_t prompt_tokens,
                                                     const HeadMapInfo* head_map = nullptr);

// Whether kv_head_check is on whatever the request says.
bool NeedsHeadCheck(const HeadMapInfo& head_map, int64_t prompt_tokens);

// A ratio as text ("0.2") to parts per million: a finite decimal with at most six places, nothing
// else around it. Nothing when malformed.
std::optional<int64_t> ParseRatioPpm(std::string_view text);
// A ratio as a JSON number; nothing when it has more than six decimal places.
std::optional<int64_t> RatioToPpm(double value);
// Parts per million (>= 0) as the shortest decimal: "0.2", "0.000001", "1".
std::string RatioText(int64_t ppm);

}  // namespace headroom::server
