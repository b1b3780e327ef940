// kv_options: the settings of one policy alone (docs/kv-policies.md).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/kv/policy.h"
#include "server/generation_request.h"

namespace headroom::server {

// Writes the options into spec->options. `applied` gets the name and JSON literal of every option
// that the policy reads, named or not. Errors, which name the option and what was wanted: one that
// the policy does not have, a value of another type or out of its range.
Status ApplyPolicyOptions(const std::vector<PolicyOption>& options, const engine::KvPolicy& policy,
                          engine::KvPolicySpec* spec,
                          std::vector<std::pair<std::string, std::string>>* applied);

}  // namespace headroom::server
