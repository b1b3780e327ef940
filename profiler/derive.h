// A map's types for another recovery target, from the recoveries that it stores.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "engine/kv/head_map.h"

namespace headroom::profiler {

// Relabels every head for `theta_ppm` by the rule of the classifier, as far as the map knows: P10
// and mean over all prompts stand for the domains' means too. Dense heads whose masses ask for less
// (promoted by probes, or by one domain) stay dense. The map's own theta gives the map itself. Confidence, curves and spend plans stay; margins and `borderline` follow; domains' and
// query heads' types are those of the profile. The validation becomes "unvalidated". Errors:
// InvalidArgument for a theta outside (0, 1], a map by clusters or one whose rungs are not those
// of its ladder.
StatusOr<engine::HeadMap> DeriveHeadMap(const engine::HeadMap& map, int64_t theta_ppm);

}  // namespace headroom::profiler
