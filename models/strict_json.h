// Checks on JSON text out of model files that hold before anything is built from it.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace headroom::models {

// OK when `text` is one JSON object: nesting at most 64 deep, valid UTF-8, no object with a key
// twice, nothing around it but white space. Errors name `path` and the byte. Linear; stack use does
// not depend on the text.
Status CheckStrictJson(std::string_view text, const std::string& path);

}  // namespace headroom::models
