// The rows of an evaluation: every policy at every budget and KV type that the flags name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/kv/policy.h"
#include "kernels/ops.h"
#include "profiler/evaluation/eval_row.h"
#include "server/budget_resolver.h"
#include "server/generation_request.h"

namespace headroom::server {

struct EvalGridFlags {
  std::string policies = "full,streaming,fastkv";
  std::string retention = "0.5,0.2,0.1";
  std::string tsp = "1";
  std::string theta = "0.95";
  std::string kv_dtype = "auto";
  BudgetFields settings;  // everything but policy, retention and tsp ratio
};

// The reference (full, the first KV type) first, then for each KV type each policy: `full` once per
// tsp ratio, `fastgen` and `adaptive` under kv_mode recovery once per theta and tsp ratio, the
// others once per retention and tsp ratio. Only `adaptive` gets kv_mode, kv_scope and
// kv_head_check. `head_map`: null where the registry has no `adaptive`. What a policy refuses is a
// row with its refusal. Errors: malformed lists, unknown policies and KV types, settings out of
// range or not of a model of this shape.
StatusOr<std::vector<profiler::EvalRow>> MakeEvalRows(const EvalGridFlags& flags,
                                                      const engine::KvPolicyRegistry& policies,
                                                      const engine::KvModelShape& shape,
                                                      const HeadMapInfo* head_map,
                                                      kernels::KvDType default_dtype);

// "a,b" to its parts, blanks trimmed. Errors: nothing between two commas, a part twice.
StatusOr<std::vector<std::string>> SplitList(const std::string& text, const std::string& flag);

}  // namespace headroom::server
