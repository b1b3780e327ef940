// The hand-built model as a GGUF file with a tokenizer, so that the real loader, `profile` and
// `--head-map` can be tested on it.
#pragma once

#include <cstdint>
#include <vector>

#include "models/loaded_model.h"

namespace headroom::testing {

// `model` is MakeHandBuiltModel's, its attention weights changed perhaps. The tokenizer's classes
// are HandBuiltClasses.
std::vector<uint8_t> HandBuiltGguf(const models::LoadedModel& model);

}  // namespace headroom::testing
