#include "server/cli/eval_grid.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "server/budget_resolver.h"

namespace headroom::server {
namespace {

using engine::kPpm;
using profiler::EvalRow;

StatusOr<std::vector<int64_t>> ParseRatios(const std::string& text, const std::string& flag) {
  HEADROOM_ASSIGN_OR_RETURN(const auto parts, SplitList(text, flag));
  std::vector<int64_t> ratios;
  for (const std::string& part : parts) {
    const auto ppm = ParseRatioPpm(part);
    if (!ppm.has_value() || *ppm < 1 || *ppm > kPpm) {
      return InvalidArgument("{}: got {}, wanted ratios in (0, 1] with at most six decimal places",
                             flag, part);
    }
    if (std::find(ratios.begin(), ratios.end(), *ppm) != ratios.end()) {
      return InvalidArgument("{}: {} is named twice", flag, profiler::PpmText(*ppm));
    }
    ratios.push_back(*ppm);
  }
  return ratios;
}

StatusOr<std::vector<kernels::KvDType>> ParseDTypes(const std::string& text,
                                                    kernels::KvDType default_dtype) {
  HEADROOM_ASSIGN_OR_RETURN(const auto parts, SplitList(text, "--kv-dtype"));
  std::vector<kernels::KvDType> dtypes;
  for (const std::string& part : parts) {
    if (part == "auto") {
      dtypes.push_back(default_dtype);
    } else if (part == "f32") {
      dtypes.push_back(kernels::KvDType::kF32);
    } else if (part == "bf16") {
      dtypes.push_back(kernels::KvDType::kBF16);
    } else if (part == "int8") {
      dtypes.push_back(kernels::KvDType::kInt8);
    } else {
      return InvalidArgument("--kv-dtype: got {}, wanted auto, f32, bf16 or int8", part);
    }
    if (std::count(dtypes.begin(), dtypes.end(), dtypes.back()) > 1) {
      return InvalidArgument("--kv-dtype: {} is named twice", profiler::DTypeName(dtypes.back()));
    }
  }
  return dtypes;
}

// The budgets of the rows of one policy, before KV types.
struct Budget {
  int64_t retention_ppm = kPpm;
  int64_t tsp_ppm = kPpm;
  std::optional<int64_t> theta_ppm;
};

struct Axes {
  std::vector<int64_t> retention;
  std::vector<int64_t> tsp;
  std::vector<int64_t> theta;
};

constexpr const char* kAdaptive = "adaptive";

std::vector<Budget> BudgetsOf(const std::string& name, const Axes& axes,
                              const BudgetFields& settings,
                              const engine::KvPolicyRegistry& policies) {
  const engine::KvPolicy* policy = policies.Find(name);  // unknown ones are refused later
  const bool has_recovery = (policy != nullptr && policy->has_recovery()) ||
                            (name == kAdaptive && settings.kv_mode == "recovery");
  std::vector<Budget> budgets;
  for (const int64_t tsp : axes.tsp) {
    if (name == "full") {
      budgets.push_back({.retention_ppm = kPpm, .tsp_ppm = tsp, .theta_ppm = {}});
    } else if (has_recovery) {
      for (const int64_t theta : axes.theta) {
        budgets.push_back({.retention_ppm = kPpm, .tsp_ppm = tsp, .theta_ppm = theta});
      }
    } else {
      for (const int64_t retention : axes.retention) {
        budgets.push_back({.retention_ppm = retention, .tsp_ppm = tsp, .theta_ppm = {}});
      }
    }
  }
  return budgets;
}

bool Reads(const engine::KvPolicy& policy, const PolicyOption& option) {
  const std::vector<std::string> names = policy.OptionNames();
  return std::find(names.begin(), names.end(), option.name) != names.end();
}

// Each policy gets the options that it reads; one that none reads is a mistake.
Status CheckOptions(const std::vector<std::string>& names, const BudgetFields& settings,
                    const engine::KvPolicyRegistry& policies) {
  for (const PolicyOption& option : settings.kv_options.value_or(std::vector<PolicyOption>())) {
    if (std::none_of(names.begin(), names.end(), [&](const std::string& name) {
          const engine::KvPolicy* policy = policies.Find(name);
          return policy == nullptr || Reads(*policy, option);
        })) {
      return InvalidArgument("--kv-options: none of the policies {} has the setting {}",
                             fmt::join(names, ", "), option.name);
    }
  }
  return OkStatus();
}

// A row without its KV type.
StatusOr<EvalRow> ResolveRow(const std::string& policy, const Budget& budget,
                             const BudgetFields& settings, const engine::KvPolicyRegistry& policies,
                             const engine::KvModelShape& shape, const HeadMapInfo* head_map) {
  EvalRow row;
  row.policy = policy;
  row.retention_ppm = budget.retention_ppm;
  row.tsp_ppm = budget.tsp_ppm;
  row.theta_ppm = budget.theta_ppm;
  BudgetFields fields = settings;
  fields.kv_policy = policy;
  fields.kv_retention_ppm = budget.retention_ppm;
  fields.tsp_ratio_ppm = budget.tsp_ppm;
  fields.kv_recovery_ppm = budget.theta_ppm;
  if (policy != kAdaptive) {
    fields.kv_mode.reset();
    fields.kv_scope.reset();
    fields.kv_head_check.reset();
  } else if (budget.theta_ppm.has_value()) {
    fields.kv_retention_ppm.reset();
  }
  if (const engine::KvPolicy* known = policies.Find(policy);
      known != nullptr && fields.kv_options.has_value()) {
    std::erase_if(*fields.kv_options,
                  [&](const PolicyOption& option) { return !Reads(*known, option); });
  }
  // Documents have many lengths, and eval's short-prompt thresholds are 0 unless named. Whether one
  // is out of the profile's range is not looked at.
  HeadMapInfo info = head_map != nullptr ? *head_map : HeadMapInfo{};
  info.profiled_tokens = 0;
  const auto resolved = ResolveBudget(fields, {}, policies, /*prompt_tokens=*/INT32_MAX,
                                      head_map != nullptr ? &info : nullptr);
  if (const auto* error = std::get_if<ApiError>(&resolved)) {
    if (error->code != "policy_unsupported") {
      return InvalidArgument("{}", error->message);
    }
    row.refusal = error->message;
    return row;
  }
  row.spec = std::get<ResolvedBudget>(resolved).spec;
  HEADROOM_RETURN_IF_ERROR(policies.Find(policy)->ValidateShape(row.spec, shape));
  return row;
}

bool IsReference(const EvalRow& row, kernels::KvDType dtype, const EvalRow& reference) {
  return row.policy == "full" && row.tsp_ppm == kPpm && dtype == reference.kv_dtype;
}

}  // namespace

StatusOr<std::vector<std::string>> SplitList(const std::string& text, const std::string& flag) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string part = text.substr(begin, end - begin);
    part.erase(0, std::min(part.find_first_not_of(" \t"), part.size()));
    part.erase(part.find_last_not_of(" \t") + 1);
    if (part.empty()) {
      return InvalidArgument("{}: got \"{}\", wanted values separated by commas", flag, text);
    }
    if (std::find(parts.begin(), parts.end(), part) != parts.end()) {
      return InvalidArgument("{}: {} is named twice", flag, part);
    }
    parts.push_back(std::move(part));
    begin = end + 1;
  }
  return parts;
}

StatusOr<std::vector<EvalRow>> MakeEvalRows(const EvalGridFlags& flags,
                                            const engine::KvPolicyRegistry& policies,
                                            const engine::KvModelShape& shape,
                                            const HeadMapInfo* head_map,
                                            kernels::KvDType default_dtype) {
  HEADROOM_ASSIGN_OR_RETURN(const auto names, SplitList(flags.policies, "--policies"));
  HEADROOM_ASSIGN_OR_RETURN(const auto dtypes, ParseDTypes(flags.kv_dtype, default_dtype));
  Axes axes;
  HEADROOM_ASSIGN_OR_RETURN(axes.retention, ParseRatios(flags.retention, "--retention"));
  HEADROOM_ASSIGN_OR_RETURN(axes.tsp, ParseRatios(flags.tsp, "--tsp"));
  HEADROOM_ASSIGN_OR_RETURN(axes.theta, ParseRatios(flags.theta, "--theta"));
  HEADROOM_RETURN_IF_ERROR(CheckOptions(names, flags.settings, policies));
  std::vector<EvalRow> cells;
  for (const std::string& name : names) {
    for (const Budget& budget : BudgetsOf(name, axes, flags.settings, policies)) {
      HEADROOM_ASSIGN_OR_RETURN(
          EvalRow row, ResolveRow(name, budget, flags.settings, policies, shape, head_map));
      cells.push_back(std::move(row));
    }
  }
  std::vector<EvalRow> rows = {profiler::ReferenceRow(dtypes.front())};
  for (const kernels::KvDType dtype : dtypes) {
    for (EvalRow row : cells) {
      if (!IsReference(row, dtype, rows.front())) {
        row.kv_dtype = dtype;
        rows.push_back(std::move(row));
      }
    }
  }
  return rows;
}

}  // namespace headroom::server
