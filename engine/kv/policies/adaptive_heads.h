// What `adaptive` reads from one head of the map: the type it is held to have, and what that type
// keeps of a prompt.
#pragma once

#include <cstdint>

#include "engine/kv/head_map.h"

namespace headroom::engine {

// A head that is not sure of a fixed type is held to be heavy.
HeadType SpentType(const HeadEntry& head);

// Heavy or dense.
bool IsElastic(HeadType type);

// Entries of N tokens that the head's rung keeps.
int64_t RungBudget(const HeadEntry& head, int64_t num_tokens);

// The last so many prompt positions that a local head keeps: its budget without the special tokens
// and the punctuation that the profile counted in it. 0: it is not local.
int32_t LocalWindow(const MapProfile& profile, const HeadEntry& head, int64_t num_tokens);

bool KeepsPunctuation(const HeadEntry& head);

}  // namespace headroom::engine
