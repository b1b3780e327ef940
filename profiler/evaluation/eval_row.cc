#include "profiler/evaluation/eval_row.h"

#include "base/status.h"

namespace headroom::profiler {

EvalRow ReferenceRow(kernels::KvDType kv_dtype) {
  EvalRow row;
  row.policy = "full";
  row.kv_dtype = kv_dtype;
  row.spec.policy = "full";
  return row;
}

std::string DTypeName(kernels::KvDType dtype) {
  switch (dtype) {
    case kernels::KvDType::kF32:
      return "f32";
    case kernels::KvDType::kBF16:
      return "bf16";
    case kernels::KvDType::kInt8:
      return "int8";
  }
  return "unknown";
}

std::string PpmText(int64_t ppm) {
  std::string text = fmt::format("{}.{:06d}", ppm / engine::kPpm, ppm % engine::kPpm);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') {
    text.pop_back();
  }
  return text;
}

std::string BudgetText(const EvalRow& row) {
  std::string text;
  const auto add = [&text](const char* name, int64_t ppm) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, PpmText(ppm));
  };
  if (row.theta_ppm.has_value()) {
    add("theta", *row.theta_ppm);
  } else if (row.retention_ppm != engine::kPpm) {
    add("rho", row.retention_ppm);
  }
  if (row.tsp_ppm != engine::kPpm) {
    add("tau", row.tsp_ppm);
  }
  return text;
}

std::string RowLabel(const EvalRow& row) {
  const std::string budget = BudgetText(row);
  return fmt::format("{}{}{}, {}", row.policy, budget.empty() ? "" : " ", budget,
                     DTypeName(row.kv_dtype));
}

}  // namespace headroom::profiler
