// OpenAI-style JSON bodies and budget headers -> GenerationRequest.
//
// Checks types and shapes; ranges belong to GenerationService. Unknown fields are ignored and
// counted; a known field whose meaning is not supported is refused by name. null means absent.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "server/api_error.h"
#include "server/generation_request.h"

namespace headroom::server {

enum class Endpoint : uint8_t { kChatCompletions, kCompletions };

struct ParsedBody {
  GenerationRequest request;
  int64_t num_unknown_fields = 0;
};

// Nesting is bounded before a document exists; duplicate keys, bytes after the document and text
// that is not UTF-8 are refused with the byte offset.
std::variant<ParsedBody, ApiError> ParseBody(Endpoint endpoint, std::string_view body);

// `headers` are (lower-case name, value) in order. Budget headers are x-kv-* and x-tsp-*; one given
// twice is a fault, an unknown one is ignored.
std::variant<BudgetFields, ApiError> ParseBudgetHeaders(
    const std::vector<std::pair<std::string, std::string>>& headers);

}  // namespace headroom::server
