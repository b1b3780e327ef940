// Two head maps beside each other: what `headroom headmap diff` and `check` say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/kv/head_map.h"

namespace headroom::profiler {

struct HeadFlip {
  size_t head = 0;  // [num_layers, num_kv_heads]
  engine::HeadType before = engine::HeadType::kHeavy;
  engine::HeadType after = engine::HeadType::kHeavy;
  bool borderline = false;  // in either map
};

// Heads whose type differs, in their order. InvalidArgument for maps of other shapes.
StatusOr<std::vector<HeadFlip>> DiffHeadMaps(const engine::HeadMap& before,
                                             const engine::HeadMap& after);

// Flips with both maps' margins and probe scores, counts by type, T and the hashes that differ.
std::string DiffText(const engine::HeadMap& before, const engine::HeadMap& after,
                     const std::vector<HeadFlip>& flips);

// Whether a map still fits heads that were measured anew. It does not when
//   a head that probes now find to fetch is not typed dense in it, or
//   more than 5 % of the heads need a costlier type than theirs, borderline ones not counted:
// what a map gives too much costs memory, what it gives too little costs answers.
struct MapVerdict {
  bool keep = true;
  int64_t missed_probes = 0;  // heads of the first kind
  int64_t needier = 0;        // heads of the second kind
  std::string text;           // a sentence
};
MapVerdict JudgeMap(const engine::HeadMap& map, const engine::HeadMap& fresh);

}  // namespace headroom::profiler
