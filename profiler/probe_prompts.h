// Prompts in which something has to be fetched from far back, with where it stands.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "profiler/evaluation/chat_prompt.h"
#include "profiler/evaluation/needle_prompt.h"

namespace headroom::profiler {

// Half-open range of positions in a prompt.
struct TokenSpan {
  int32_t begin = 0;
  int32_t end = 0;
};

// The row at `row` predicts the token behind it, which also stands at `source`.
struct ProbeCopy {
  int32_t row = 0;
  int32_t source = 0;
};

// Several rows of a probe that look for one thing.
struct ProbeQuestion {
  std::vector<TokenSpan> needles;  // what holds the answer; ascending, disjoint
  TokenSpan asking;                // rows of question and answer, all behind the needles
  std::vector<ProbeCopy> copies;   // one for each token of the answer that is in a needle
};

struct ProbePrompt {
  std::string id;
  std::string kind;                      // "needle", "needle_prompts", "induction"
  std::vector<int32_t> ids;              // the answer included
  std::vector<ProbeQuestion> questions;  // needles
  // Induction: ids[block_begin ...) is a block of block_tokens, repeated.
  int32_t block_begin = 0;
  int32_t block_tokens = 0;
};

struct ProbeRequest {
  int32_t length = 1000;  // tokens of a prompt, about
  int32_t count = 8;
  int32_t num_needles = 1;  // sentences hidden in a needle prompt; one is asked for
  uint64_t seed = 1;
};

// Well-formed text of tokens; bytes that are no character are left out.
std::string TextOfTokens(const models::Tokenizer& tokenizer, std::span<const int32_t> ids);

// Needles in running text of the model's own prompts: `fillers` are token ids of prompts, whose
// text is strung together. Depths cover the context evenly. Errors: too little text, a length too
// short for the question, a template that does not show it.
StatusOr<std::vector<ProbePrompt>> MakeTextProbes(const TextFormat& format,
                                                  std::span<const std::vector<int32_t>> fillers,
                                                  const ProbeRequest& request);

// A prompt of ids with its answer: the source of an answer's token is where the tokens in front of
// it have their longest match inside `needles` (empty: in the whole context). Error:
// InvalidArgument where no token of the answer is found, or a span lies outside the context.
StatusOr<ProbePrompt> MakeIdProbe(const NeedlePrompt& prompt, std::vector<TokenSpan> needles = {});

// Blocks of tokens that are drawn from the vocabulary, control tokens left out, `repeats` times
// over. `tokenizer` may be null: then any id may be drawn.
std::vector<ProbePrompt> MakeBlockProbes(const models::Tokenizer* tokenizer, int32_t vocab_size,
                                         int32_t repeats, const ProbeRequest& request);

}  // namespace headroom::profiler
