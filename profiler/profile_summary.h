// What both forms of the report say of a map in words and numbers.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/kv/head_map.h"
#include "profiler/profile_report.h"

namespace headroom::profiler {

using TypeCounts = std::array<int64_t, engine::kNumHeadTypes>;
TypeCounts CountTypes(const std::vector<engine::HeadEntry>& heads);

// The range that popular descriptions of FastGen give for a type's share, "10-15": no measurement
// of ours, and none of the paper's. "-" for dense.
const char* TypicalShare(engine::HeadType type);

// "12.0": layer and KV head.
std::string HeadName(const engine::HeadMap& map, size_t index);

// Heads with a probe score, the highest first; ties in their order.
std::vector<size_t> ByProbeScore(const std::vector<engine::HeadEntry>& heads);

// Heads whose type differs between domains.
std::vector<size_t> DomainFlips(const std::vector<engine::HeadEntry>& heads);

// What a reader should be wary of, the run's own warnings first.
std::vector<std::string> Warnings(const ProfileReport& report);

}  // namespace headroom::profiler
