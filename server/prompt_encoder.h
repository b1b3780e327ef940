// A prompt in any form -> token ids and where its content ends.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "server/api_error.h"
#include "server/generation_request.h"
#include "server/runtime.h"

namespace headroom::server {

struct EncodedPrompt {
  std::vector<int32_t> ids;
  int32_t content_end = 0;  // one past the last token that holds a message byte; ids.size() if none
};

// Renders the chat template where there is a conversation, tokenises text, checks ids. Text that
// came with the request can only become plain tokens, never control tokens.
std::variant<EncodedPrompt, ApiError> EncodePrompt(const Prompt& prompt, const Runtime& runtime,
                                                   const Clock& clock);

}  // namespace headroom::server
