// The budget fields of a body; those of headers are in openai_parse.h.
#pragma once

#include "server/generation_request.h"
#include "server/http/openai_json.h"

namespace headroom::server {

// Types and decimal places are checked here, ranges by ResolveBudget.
void ReadBudgetBody(ObjectReader& reader, BudgetFields* fields);

}  // namespace headroom::server
