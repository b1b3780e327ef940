// What every token of a vocabulary is: special, punctuation or neither. Made once per tokenizer.
//
// Special: control tokens, and user-defined pieces with punctuation or symbols in them (markup such
// as "<tool_call>"). Punctuation: pieces with a line break in them, and pieces of Unicode P*
// characters alone, white space around them aside. White space alone is neither.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/kv/budget.h"
#include "models/tokenizer/tokenizer.h"

namespace headroom::engine {

using TokenClasses = std::shared_ptr<const std::vector<TokenClass>>;

TokenClasses ClassifyVocabulary(const models::Tokenizer& tokenizer);  // [vocab]

// The classes of a prompt's tokens, each id in [0, vocab); null where `vocabulary` is.
TokenClasses ClassifyPrompt(const TokenClasses& vocabulary, std::span<const int32_t> ids);

}  // namespace headroom::engine
