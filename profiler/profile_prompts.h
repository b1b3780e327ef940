// What the profiler reads: prompts as token ids, and those of them in which something is hidden.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "profiler/evaluation/chat_prompt.h"
#include "profiler/evaluation/needle_prompt.h"
#include "profiler/probe_prompts.h"

namespace headroom::profiler {

struct ProfilePrompt {
  std::string id;      // as given, or "file:line"; in messages only
  std::string domain;  // "text" unless given
  double weight = 1.0;
  std::vector<int32_t> ids;
  std::string hash;  // of the ids: the order of prompts goes by it
};

// Settings of reading. `format` is null for models without a tokenizer: only token ids then.
struct PromptLimits {
  const TextFormat* format = nullptr;
  int32_t vocab_size = 0;
  int32_t max_tokens = 4096;  // longer prompts keep their first and last half of that
};

struct ProfileInput {
  std::vector<ProfilePrompt> prompts;
  std::vector<ProbePrompt> probes;  // of prompts that say where something is hidden
  // The same with the answer apart: ids of context and question. As long as `probes`.
  std::vector<NeedlePrompt> needles;
  int64_t num_blank = 0;  // lines or records without content
  int64_t num_cut = 0;    // prompts that were longer than max_tokens
};

// JSON lines: {"text" | "messages" | "token_ids", "id"?, "domain"?, "weight"?, "continuation"?,
// "needles"? [{"start", "end"}]}. A continuation (text, or ids behind token_ids) stands behind the
// prompt; with needles, which needs token_ids, it is the answer that stands in them. Also the lines
// that scripts/make_needle_prompts.py writes: {"context", "question", "answer"} as ids. Appends to
// `input`. Errors name file:line: not JSON, unknown members, ids outside the vocabulary, an id
// twice.
Status ReadPromptLines(std::string_view text, const std::string& source, const PromptLimits& limits,
                       ProfileInput* input);

// Plain text: records parted by lines that are "---".
Status ReadPromptText(std::string_view text, const std::string& source, const PromptLimits& limits,
                      ProfileInput* input);

// One prompt of text; blank text is counted and left out.
void AddTextPrompt(const std::string& text, const std::string& id, const PromptLimits& limits,
                   ProfileInput* input);
// One prompt of ids, at least one.
void AddPrompt(ProfilePrompt prompt, const PromptLimits& limits, ProfileInput* input);

// Puts prompts into the order of their hashes and takes the first `limit`: a sample that does not
// depend on the order of files and lines.
void SortAndLimit(int64_t limit, ProfileInput* input);

// Each prompt cut to every one of `lengths` (ascending) that it has; shorter ones stay as they are.
// Without lengths nothing changes.
void CutToLengths(const std::vector<int32_t>& lengths, ProfileInput* input);

// What validation is done with.
struct HeldOut {
  std::vector<ProfilePrompt> prompts;
  std::vector<NeedlePrompt> needles;  // of those prompts that hide something
};
// Takes `count` prompts out of the sorted input, evenly over it, and the probes that they are.
HeldOut TakeHeldOut(int64_t count, ProfileInput* input);

}  // namespace headroom::profiler
