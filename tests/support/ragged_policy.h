// A policy whose kept sets differ in length and place in every layer and KV head: what no real
// policy does to such a degree, and what every reader of the cache must survive.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/kv/policy.h"

namespace headroom::testing {

// "ragged": each (layer, KV head) keeps a seeded random set of 1 to all slots, always with the last
// row. kv_retention is not read; tsp_ratio < 1 selects rows as in every policy.
std::unique_ptr<engine::KvPolicy> MakeRaggedPolicy(uint64_t seed);

}  // namespace headroom::testing
