// The policies that the registry lists, one file each.
#pragma once

#include <memory>

#include "engine/kv/policy.h"

namespace headroom::engine {

// Keeps everything; with tsp_ratio < 1 everything of the rows that each layer saw ("TSP only").
std::unique_ptr<KvPolicy> MakeFullPolicy();

// Sinks and the most recent tokens; decode keeps to the prompt's budget [StreamingLLM, 2309.17453].
std::unique_ptr<KvPolicy> MakeStreamingPolicy();

// Token-selective propagation and uniform window-score retention [FastKV, 2502.01068 v3].
std::unique_ptr<KvPolicy> MakeFastKvPolicy();

}  // namespace headroom::engine
