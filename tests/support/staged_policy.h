// Policies that walk the ways that a prefill can take and drop nothing: what they compute is what
// the full path computes, bit for bit.
#pragma once

#include <memory>

#include "engine/kv/policy.h"

namespace headroom::testing {

// "stairs": one phase per layer, each of which selects all of its rows. kv_retention is not read.
std::unique_ptr<engine::KvPolicy> MakeStairsPolicy();

// "again": reads the prompt up to the TSP layer, chooses all of it, and starts afresh.
std::unique_ptr<engine::KvPolicy> MakeAgainPolicy();

}  // namespace headroom::testing
