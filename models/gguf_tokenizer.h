// What a GGUF file says of its tokenizer (tokenizer.ggml.* and tokenizer.chat_template).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "models/gguf.h"
#include "models/tokenizer/tokenizer.h"

namespace headroom::models {

// Nothing when the file holds no vocabulary. Errors: wrong types, arrays of other lengths than the
// vocabulary's, unknown token types, ids outside the vocabulary.
StatusOr<std::optional<TokenizerData>> ReadGgufTokenizer(const GgufFile& file);

// The ids that end a generation, ascending: eos, eot and eom of the metadata, and the vocabulary's
// own end-of-turn pieces where they are control tokens (a file may name only one of them).
StatusOr<std::vector<int32_t>> ReadGgufEosIds(const GgufFile& file, const TokenizerData& data);

}  // namespace headroom::models
