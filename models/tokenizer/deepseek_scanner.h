// The pre-tokenizer of DeepSeek LLM: six patterns, each cutting what the one before left.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace headroom::models {

// PreTokenize for PreTokenizerKind::kDeepSeekLlm; `ends` is empty at the start.
void PreTokenizeDeepSeekLlm(std::string_view text, std::vector<size_t>* ends);

}  // namespace headroom::models
