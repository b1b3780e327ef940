// What a request needs of the engine, known before it is queued. Pure functions of constant data:
// any thread.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "engine/kv/policy.h"
#include "engine/request.h"
#include "engine/token_classes.h"

namespace headroom::engine {

struct EngineShape {
  KvModelShape kv;
  int32_t vocab_size = 0;
  int32_t max_context_tokens = 0;
  int64_t num_pages = 0;
  TokenClasses token_classes;  // [vocab_size]; null without a tokenizer
};

struct Capacity {
  int64_t peak_pages = 0;    // reserved until prefill ends; at least SteadyPages(num_choices)
  int64_t prefill_pages = 0;  // of peak_pages, what reading the prompt takes
  int64_t shared_pages = 0;  // of the prompt, read by all choices and written by none
  int64_t choice_pages = 0;  // further pages of each choice: its growth and its copies
  int64_t rows_total = 0;    // prompt rows of all phases
  PrefillPhase first_phase;

  // Reserved once prefill has ended and so many choices are left.
  int64_t SteadyPages(int32_t num_choices) const {
    return shared_pages + num_choices * choice_pages;
  }
};

// The prompt as policies see it; `classes` of the vocabulary may be null.
PromptInfo PromptInfoOf(const Request& request, const TokenClasses& classes);

// Layers that a row of the phase costs; at least 1.
int32_t NumLayersOf(const PrefillPhase& phase);

// The error of a request longer than the context, in OpenAI's wording. OutOfRange.
Status ContextLengthError(int64_t max_context_tokens, int64_t prompt_tokens, int64_t new_tokens);

// Errors: InvalidArgument (no prompt, no choice, ids outside the vocabulary, unknown policy or
// settings that it refuses), OutOfRange (context length; OpenAI's wording), ResourceExhausted (more
// pages than the pool has).
StatusOr<Capacity> CapacityOf(const Request& request, const EngineShape& shape,
                              const KvPolicyRegistry& policies);

}  // namespace headroom::engine
