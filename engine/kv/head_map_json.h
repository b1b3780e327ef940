// What the reader and the writer of head maps share; others use head_map.h.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/kv/head_map.h"

namespace headroom::engine {

using Json = nlohmann::json;  // objects sort their members by name

inline constexpr const char* kHeadMapSchema = "headmap/1";
// The members of a head's "masses", in the order of HeadEntry::masses_ppm.
inline constexpr std::array<const char*, 5> kMassNames = {"sink", "special", "punct", "last_64",
                                                          "other"};

// The derived member "summary": heads per type, and the types as one line per layer for readers
// and line-wise comparison.
Json SummaryJson(const HeadMap& map);

// The canonical text and the hash in it.
struct HashedText {
  std::string text;
  std::string hash;
};
HashedText WriteHashed(const HeadMap& map);

}  // namespace headroom::engine
