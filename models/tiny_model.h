// builtin:tiny: a random model with a byte-level tokenizer. Nonsense text, real protocol.
#pragma once

#include "base/status.h"
#include "models/loaded_model.h"

namespace headroom::models {

// The same weights on every machine. Text is printable ASCII almost always.
StatusOr<LoadedModel> MakeTinyModel();

}  // namespace headroom::models
