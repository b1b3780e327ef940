// Text prompts in a model's tokens: through its chat template where it has one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "models/chat_template/chat_template.h"
#include "models/tokenizer/tokenizer.h"
#include "profiler/evaluation/needle_prompt.h"

namespace headroom::profiler {

// What a model makes of text. References outlive the format.
struct TextFormat {
  const models::Tokenizer& tokenizer;
  const models::ChatTemplate* chat_template = nullptr;  // null: plain text
  const Clock& clock;                                   // of the template's time limit
};

struct SplitPrompt {
  std::vector<int32_t> ids;
  int32_t content_end = 0;  // one past the last token that holds a byte of the message
  int32_t split = 0;        // tokens that belong to the context alone
};

// The user message `context` + `question` as the server would encode it; without a template the
// text itself and a line break. The split is the longest run of tokens that encoding the text in
// front of the question gives as well. Templates that print the date get none. Errors: the template
// refuses, or does not show the question.
StatusOr<SplitPrompt> EncodePrompt(const TextFormat& format, const std::string& context,
                                   const std::string& question);

// One turn of a conversation.
struct ChatTurn {
  std::string role;
  std::string content;
};

// A conversation through the chat template, ready for the assistant's turn unless that is the last
// one. Errors: no template, or it refuses.
StatusOr<std::vector<int32_t>> EncodeConversation(const TextFormat& format,
                                                  const std::vector<ChatTurn>& turns);
// Text as it is, with BOS where the model wants one.
std::vector<int32_t> EncodePlainText(const TextFormat& format, const std::string& text);

// The beginning of an answer: "What is the door number for Oslo?" -> "The door number for Oslo is".
// Empty for questions of another form.
std::string AnswerLead(const std::string& question);

// A text needle as a prompt with up to `num_candidates` candidates (0: none), random codes of the
// answer's length where the answer is made of digits. The draws depend on `seed` and the needle.
StatusOr<NeedlePrompt> EncodeNeedle(const TextFormat& format, const TextNeedle& needle,
                                    int32_t num_candidates, uint64_t seed);

}  // namespace headroom::profiler
