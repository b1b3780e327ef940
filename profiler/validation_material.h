// What a map is validated on, and ordered by, made of prompts that the profile read or left out.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "profiler/evaluation/chat_prompt.h"
#include "profiler/evaluation/needle_prompt.h"
#include "profiler/profile_prompts.h"
#include "profiler/validation.h"

namespace headroom::profiler {

struct MaterialOptions {
  int32_t needle_length = 1000;  // tokens of a made needle prompt; less where text is short
  int32_t num_needles = 32;
  int32_t num_documents = 16;
  int32_t continuation_tokens = 128;  // of a document; less where documents are short
  int32_t max_context = 4096;         // tokens of a prompt and its answer, at most
  uint64_t seed = 1;
  // Where none are made or held out, a warning is added.
  std::vector<std::string>* warnings = nullptr;
};

// Documents are the held-out prompts that are long enough. Needles are those that were held out;
// where none were and the model has a tokenizer (`format`), codes hidden in held-out text.
ValidationMaterial MakeValidationMaterial(const HeldOut& held_out, const TextFormat* format,
                                          const MaterialOptions& options);

// Needles for the order of dense heads, from what the profile read: its own, or codes in its text.
std::vector<NeedlePrompt> MakeOrderNeedles(const ProfileInput& input, const TextFormat* format,
                                           const MaterialOptions& options);

}  // namespace headroom::profiler
