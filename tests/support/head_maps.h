// Head maps for tests: valid, with every member set, made by formula.
#pragma once

#include <cstdint>

#include "engine/kv/head_map.h"

namespace headroom::testing {

// Types go round in the order of HeadType, head by head, so that all occur once there are five
// heads; the later a dense head, the higher its probe score. Spend: answers 0.8, balanced 0.5,
// fluency 0.25 of the elastic pool for dense heads (balanced: 0.25 below retention 0.2).
engine::HeadMap MakeHeadMap(int32_t num_layers, int32_t num_kv_heads, int32_t group_size);

}  // namespace headroom::testing
