// Ready needle prompts from files of JSON lines.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "profiler/evaluation/needle_prompt.h"

namespace headroom::profiler {

using NeedleLines = std::variant<std::vector<NeedlePrompt>, std::vector<TextNeedle>>;

// All lines of a file are of one kind, which the first one decides. Ids: {"id", "length",
// "context", "question", "answer" (lists of ids), "needle_begin"}. Text: {"id", "length",
// "context", "question", "answer" (strings), "depth"}. "id", "length", "needle_begin" and "depth"
// may be missing: the line's number, the number of tokens (0 for text), depth 0. At most
// `max_prompts`, the first ones. Errors name the line.
StatusOr<NeedleLines> ParseNeedles(std::string_view text, const std::string& source,
                                   int32_t vocab_size, int32_t max_prompts);

}  // namespace headroom::profiler
