// Makes needle prompts: records of ids for the needle models, codes in running text for any model
// with a tokenizer. The same arguments give the same prompts on every machine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "profiler/evaluation/chat_prompt.h"
#include "profiler/evaluation/needle_prompt.h"

namespace headroom::profiler {

// How many prompts, and how long.
struct NeedleRequest {
  int32_t length = 512;  // tokens: of context, question and answer (ids); of the prompt (text)
  int32_t count = 32;
  uint64_t seed = 1;
};

// Prompts for the needle models (tests/data/needle-1hop, needle-2hop), as
// scripts/make_needle_prompts.py describes them. Records [key v v v] stand at random places of
// running text; `1hop` asks [QRY key] for v v v, `2hop` asks [QRY alias] for ALIAS key v v v with
// the alias in a record of its own. `text` gives the running text; bytes of 128 and above are left
// out. Errors: a length under 64, a text that is too short, a vocabulary other than 512.
StatusOr<std::vector<NeedlePrompt>> MakeIdNeedles(std::string_view task, std::string_view text,
                                                  const NeedleRequest& request, int32_t vocab_size);

// A sentence with a code, hidden in `text` at depths that cover the context evenly, and a question
// for the code as the user's message. Prompts have `length` tokens within 2 %, chat template
// included. Errors: a text too short for the length, a length too short for the question.
StatusOr<std::vector<TextNeedle>> MakeTextNeedles(const TextFormat& format, std::string_view text,
                                                  const NeedleRequest& request);

// Candidates for exact tasks: the answer behind its first token (which becomes `lead`: with the
// question in the prompt it would come from prefill logits, which no eviction has touched) against
// the same part of other prompts' answers, up to `num_candidates` different ones of equal length.
void AddCandidates(std::vector<NeedlePrompt>& prompts, int32_t num_candidates, uint64_t seed);

}  // namespace headroom::profiler
