// Head maps by formula for models of any shape.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/kv/head_map.h"
#include "engine/kv/policies/policies.h"

namespace headroom::testing {

// All types in turn over layers and heads, with windows, punctuation, weights, budgets and probe
// scores of short prompts; one head in ten is unsure of its type. Plans "balanced" (quotas, layers
// by their heads) and "answers" (no quotas, layers by demand).
engine::HeadMap MakeTestMap(int32_t num_layers, int32_t num_kv_heads, uint64_t seed);

// Every head heavy, every weight 1.
engine::HeadMap MakeUniformMap(int32_t num_layers, int32_t num_kv_heads);

// Of short prompts: the last 6 tokens are mandatory, floors of 3, of which 2 are the newest, and
// leads of 2.
inline constexpr engine::AdaptiveSettings kShortSettings = {
    .recent_tokens = 6, .floor_entries = 3, .newest_entries = 2, .oldest_entries = 2};

// `adaptive` with MakeTestMap, as fixtures register it.
std::unique_ptr<engine::KvPolicy> MakeTestAdaptive(int32_t num_layers, int32_t num_kv_heads);

}  // namespace headroom::testing
