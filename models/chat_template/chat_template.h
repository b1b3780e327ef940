// Chat templates: an own interpreter for the Jinja subset that published templates use.
//
// A template comes from a model file, so it is not trusted: no host objects, no imports, no
// recursion of ours, and hard limits on steps, depth, output and time. Rendered text carries,
// byte for byte, whether it came from the template or from a message.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "models/chat_template/value.h"
#include "models/tokenizer/tokenizer.h"

namespace headroom::models {

struct TemplateLimits {
  int64_t max_source_bytes = 1 << 20;
  int64_t max_steps = 10'000'000;         // interpreter steps a rendering may take
  int32_t max_depth = 64;                 // nesting of expressions, blocks and macro calls
  int64_t max_output_bytes = 64LL << 20;  // rendered text
  int64_t max_value_bytes = 256LL << 20;  // memory that values made by the template may hold
  int64_t max_time_ms = 2000;
};

struct ChatInput {
  Value messages;  // list of dicts: role, content, and what the client sent
  Value tools;     // list of dicts or undefined
  bool add_generation_prompt = true;
  std::string bos_token;  // as the vocabulary spells it; may be empty
  std::string eos_token;
  std::vector<std::pair<std::string, Value>> variables;  // further top-level names
  // Seconds since 1970 of the local wall clock, for strftime_now. Unset: the template finds no
  // such function and takes its own default, as published templates do.
  std::optional<int64_t> local_time_s;
};

class ChatTemplate {
 public:
  // InvalidArgument with line and column when `source` does not parse or exceeds the limits.
  static StatusOr<std::unique_ptr<ChatTemplate>> Parse(std::string source,
                                                       const TemplateLimits& limits = {});
  virtual ~ChatTemplate() = default;

  // Renders one conversation. Errors: InvalidArgument when the template itself refuses
  // (raise_exception: its text) or uses a value in an undefined way; ResourceExhausted when a
  // limit is hit. Any thread. `clock` measures the time limit.
  virtual StatusOr<ProvenancedText> Render(const ChatInput& input, const Clock& clock) const = 0;
};

}  // namespace headroom::models
