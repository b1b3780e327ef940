// Head maps in the formats of other programs. They know two kinds of heads, those that see all of
// the prompt and those that see sinks and a recent window; a gate in [0, 1] says how much a head
// needs the former:
//   dense 1; heavy 0.5 + 0.49 * probe score; local, punct and special 0.49 * probe score.
// A cut at 0.5 gives dense and heavy heads everything; other cuts follow the probes. No gate was
// trained, as those programs' own were.
#pragma once

#include <string>

#include "engine/kv/head_map.h"

namespace headroom::profiler {

// What heads without the whole prompt keep: the map's sinks, and its widest window.
struct StreamingSizes {
  int32_t sink_size = 0;
  int32_t recent_size = 0;
};
StreamingSizes StreamingSizesOf(const engine::HeadMap& map);

// The two files of a pattern directory of mit-han-lab/duo-attention: full_attention_heads.tsv, a
// line of KV heads for each layer, and config.json.
std::string DuoScores(const engine::HeadMap& map);
std::string DuoConfig(const engine::HeadMap& map);

// The same as one JSON object: sink_size, recent_size and head_scores [layers][KV heads], what
// NVIDIA/kvpress's DuoAttentionPress works with.
std::string KvpressPattern(const engine::HeadMap& map);

}  // namespace headroom::profiler
