// Needle prompts: something hidden in a long context, and a question for it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headroom::profiler {

// A prompt in tokens, ready to run.
struct NeedlePrompt {
  std::string id;
  int32_t length = 0;  // nominal tokens, a column of the heat map
  double depth = 0.0;  // where the needle stands in the context, [0, 1]

  std::vector<int32_t> ids;  // context, question and what a chat template adds
  int32_t content_end = 0;   // one past the last content token
  int32_t split = 0;         // ids[0, split) is context: what is compressed before the question

  // Exact tasks: the tokens that greedy decoding must give. Empty for text tasks.
  std::vector<int32_t> answer;
  // Text tasks: what the generated text must contain. Empty for exact tasks.
  std::string answer_text;

  // Ranking: candidates[0] is right; all have the same number of tokens and follow `lead`, which is
  // fed as decode rows. Empty: not ranked.
  std::vector<int32_t> lead;
  std::vector<std::vector<int32_t>> candidates;

  bool is_text() const { return answer.empty(); }
};

// Prompts of one kind, measured and summarized together.
struct NeedleTask {
  std::string name;
  std::vector<NeedlePrompt> prompts;
};

// A text prompt before it is put into a model's tokens.
struct TextNeedle {
  std::string id;
  int32_t length = 0;
  double depth = 0.0;
  std::string context;
  std::string question;  // as it follows the context, leading blank lines included
  std::string answer;
};

}  // namespace headroom::profiler
