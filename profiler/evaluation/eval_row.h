// What is compared: a policy with its budgets and the type of its KV cache.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/kv/budget.h"
#include "kernels/ops.h"

namespace headroom::profiler {

// One line of every table.
struct EvalRow {
  std::string policy;
  int64_t retention_ppm = engine::kPpm;
  int64_t tsp_ppm = engine::kPpm;
  std::optional<int64_t> theta_ppm;  // policies with a recovery target instead of a retention
  kernels::KvDType kv_dtype = kernels::KvDType::kF32;
  engine::KvPolicySpec spec;  // meaningful where refusal is empty
  std::string refusal;        // why the policy cannot run so; empty: it runs

  bool runs() const { return refusal.empty(); }
};

// The first row of every evaluation: nothing dropped, in the first KV type that is asked for. All
// others are compared with it.
EvalRow ReferenceRow(kernels::KvDType kv_dtype);

std::string DTypeName(kernels::KvDType dtype);
// Parts per million as the shortest decimal: "0.2".
std::string PpmText(int64_t ppm);
// The budgets alone: "rho 0.2, tau 0.2"; empty when nothing is dropped.
std::string BudgetText(const EvalRow& row);
// "fastkv rho 0.2, tau 0.2, bf16".
std::string RowLabel(const EvalRow& row);

}  // namespace headroom::profiler
