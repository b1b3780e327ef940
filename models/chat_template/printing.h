// Values as text, as Python's str() and repr() print them.
#pragma once

#include <string>

#include "base/status.h"
#include "models/chat_template/budget.h"
#include "models/chat_template/value.h"

namespace headroom::models::jinja {

// What {{ value }} prints. A string keeps its provenance; all that is computed (digits, brackets,
// quotes, True, None) counts as message bytes.
StatusOr<ProvenancedText> ToText(Budget& budget, const Value& value);

// The shortest digits that read back as `value`, in Python's layout ("1.0", "1e-05", "nan").
std::string FormatDouble(double value);

}  // namespace headroom::models::jinja
