#include "profiler/evaluation/chat_prompt.h"

#include <algorithm>
#include <cctype>

#include "profiler/evaluation/draws.h"

namespace headroom::profiler {
namespace {

using models::ProvenancedText;
using models::Value;

constexpr const char* kBlanks = " \t\r\n";

std::string Trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  return begin == std::string::npos
             ? std::string()
             : text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

StatusOr<ProvenancedText> RenderTurns(const TextFormat& format,
                                      const std::vector<ChatTurn>& turns) {
  const models::Tokenizer& tokenizer = format.tokenizer;
  const auto piece = [&](int32_t id) {
    return id < 0 ? std::string() : std::string(tokenizer.TokenPiece(id));
  };
  models::ChatInput input;
  std::vector<Value> messages;
  for (const ChatTurn& turn : turns) {
    messages.push_back(Value::Dict({{"role", Value::MessageString(turn.role)},
                                    {"content", Value::MessageString(turn.content)}}));
  }
  input.messages = Value::List(std::move(messages));
  input.add_generation_prompt = turns.back().role != "assistant";
  input.bos_token = piece(tokenizer.bos_id());
  input.eos_token = piece(tokenizer.eos_id());
  return format.chat_template->Render(input, format.clock);
}

StatusOr<ProvenancedText> Render(const TextFormat& format, const std::string& message) {
  if (format.chat_template == nullptr) {
    ProvenancedText plain;
    plain.text = message + "\n";
    plain.message_ranges.push_back({0, static_cast<int64_t>(message.size())});
    return plain;
  }
  return RenderTurns(format, {{.role = "user", .content = message}});
}

models::Encoding Encode(const TextFormat& format, const ProvenancedText& text) {
  models::Encoding encoding = format.tokenizer.Encode(text);
  const int32_t bos = format.tokenizer.bos_id();
  if (format.tokenizer.add_bos() && (encoding.ids.empty() || encoding.ids[0] != bos)) {
    encoding.ids.insert(encoding.ids.begin(), bos);
    encoding.from_message.insert(encoding.from_message.begin(), 0);
  }
  return encoding;
}

// The text up to byte `end`.
ProvenancedText Head(const ProvenancedText& text, size_t end) {
  ProvenancedText head;
  head.text = text.text.substr(0, end);
  for (models::ByteRange range : text.message_ranges) {
    range.end = std::min(range.end, static_cast<int64_t>(end));
    if (range.begin < range.end) {
      head.message_ranges.push_back(range);
    }
  }
  return head;
}

bool IsDigits(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](unsigned char c) { return std::isdigit(c) != 0; });
}

}  // namespace

StatusOr<SplitPrompt> EncodePrompt(const TextFormat& format, const std::string& context,
                                   const std::string& question) {
  HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText text, Render(format, context + question));
  const std::string shown = Trimmed(question);
  const size_t at = text.text.rfind(shown);
  if (shown.empty() || at == std::string::npos) {
    return InvalidArgument("the chat template does not show the question as it was given");
  }
  const models::Encoding whole = Encode(format, text);
  const models::Encoding head = Encode(format, Head(text, at));
  SplitPrompt prompt;
  prompt.ids = whole.ids;
  const auto parting =
      std::mismatch(whole.ids.begin(), whole.ids.end(), head.ids.begin(), head.ids.end());
  prompt.split = static_cast<int32_t>(parting.first - whole.ids.begin());
  const auto last = std::find(whole.from_message.rbegin(), whole.from_message.rend(), 1);
  prompt.content_end = static_cast<int32_t>(whole.from_message.rend() - last);
  if (prompt.split < 1 || prompt.split >= static_cast<int32_t>(prompt.ids.size())) {
    return InvalidArgument("the context or the question of a prompt is empty in tokens");
  }
  return prompt;
}

StatusOr<std::vector<int32_t>> EncodeConversation(const TextFormat& format,
                                                  const std::vector<ChatTurn>& turns) {
  if (format.chat_template == nullptr) {
    return InvalidArgument("messages: the model has no chat template, wanted text or token_ids");
  }
  if (turns.empty()) {
    return InvalidArgument("messages: got none, wanted at least one");
  }
  HEADROOM_ASSIGN_OR_RETURN(const ProvenancedText text, RenderTurns(format, turns));
  return Encode(format, text).ids;
}

std::vector<int32_t> EncodePlainText(const TextFormat& format, const std::string& text) {
  return format.tokenizer.Encode(text, format.tokenizer.add_bos(), /*parse_special=*/false);
}

std::string AnswerLead(const std::string& question) {
  constexpr std::string_view kWhat = "What is the ";
  const std::string text = Trimmed(question);
  if (!text.starts_with(kWhat) || !text.ends_with("?")) {
    return "";
  }
  return "The " + text.substr(kWhat.size(), text.size() - kWhat.size() - 1) + " is";
}

StatusOr<NeedlePrompt> EncodeNeedle(const TextFormat& format, const TextNeedle& needle,
                                    int32_t num_candidates, uint64_t seed) {
  NeedlePrompt prompt;
  prompt.id = needle.id;
  prompt.length = needle.length;
  prompt.depth = needle.depth;
  prompt.answer_text = needle.answer;
  auto encoded = EncodePrompt(format, needle.context, needle.question);
  if (!encoded.ok()) {
    return InvalidArgument("{}: {}", needle.id, StatusMessage(encoded.status()));
  }
  prompt.ids = std::move(encoded->ids);
  prompt.content_end = encoded->content_end;
  prompt.split = encoded->split;
  const std::string lead = AnswerLead(needle.question);
  if (num_candidates < 2 || lead.empty() || !IsDigits(needle.answer)) {
    return prompt;
  }
  const auto encode = [&](const std::string& text) {
    return format.tokenizer.Encode(text, /*add_bos=*/false, /*parse_special=*/false);
  };
  prompt.lead = encode(lead);
  prompt.candidates.push_back(encode(" " + needle.answer));
  Draws draws(seed, needle.id);
  std::vector<std::string> codes = {needle.answer};
  // Enough tries for any tokenizer that gives most codes of a length the same number of tokens.
  for (int tries = 0; tries < 100 * num_candidates &&
                      prompt.candidates.size() < static_cast<size_t>(num_candidates);
       ++tries) {
    std::string code;
    for (size_t i = 0; i < needle.answer.size(); ++i) {
      code += static_cast<char>('0' + draws.Below(10));
    }
    std::vector<int32_t> ids = encode(" " + code);
    if (std::find(codes.begin(), codes.end(), code) == codes.end() &&
        ids.size() == prompt.candidates[0].size()) {
      codes.push_back(code);
      prompt.candidates.push_back(std::move(ids));
    }
  }
  return prompt;
}

}  // namespace headroom::profiler
