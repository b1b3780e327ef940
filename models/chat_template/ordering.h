// Sorting of values.
#pragma once

#include <cstddef>
#include <vector>

#include "base/status.h"
#include "models/chat_template/budget.h"

namespace headroom::models::jinja {

// The stable order of `keys`, descending when `reverse` (ties keep their order either way).
// InvalidArgument when two keys cannot be compared.
StatusOr<std::vector<size_t>> SortedOrder(Budget& budget, const ValueList& keys, bool reverse);

}  // namespace headroom::models::jinja
