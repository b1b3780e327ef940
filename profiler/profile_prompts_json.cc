#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "profiler/evaluation/json_lines_json.h"
#include "profiler/profile_prompts.h"

namespace headroom::profiler {
namespace {

using nlohmann::json;

constexpr size_t kMaxDomain = 64;
constexpr double kMaxWeight = 1e6;

Status CheckMembers(const json& line, const std::string& where) {
  static const std::set<std::string> kKnown = {
      "id",     "text",         "messages", "token_ids", "domain",
      "weight", "continuation", "needles",  "context",   "question",
      "answer", "needle_begin", "length",   "task",      "depth"};
  if (!line.is_object()) {
    return InvalidArgument("{}: wanted a JSON object", where);
  }
  for (const auto& [name, value] : line.items()) {
    if (!kKnown.contains(name)) {
      return InvalidArgument("{}: unknown member \"{}\"", where, name.substr(0, 40));
    }
  }
  int forms = 0;
  for (const char* form : {"text", "messages", "token_ids", "context"}) {
    forms += line.contains(form) ? 1 : 0;
  }
  if (forms != 1) {
    return InvalidArgument("{}: got {} of text, messages, token_ids and context, wanted one", where,
                           forms);
  }
  return OkStatus();
}

Status ReadLabels(const json& line, const std::string& where, ProfilePrompt* prompt) {
  prompt->id = where;
  if (line.contains("id")) {
    HEADROOM_ASSIGN_OR_RETURN(prompt->id, ReadStringField(line, "id", where));
  }
  prompt->domain = "text";
  if (line.contains("domain")) {
    HEADROOM_ASSIGN_OR_RETURN(prompt->domain, ReadStringField(line, "domain", where));
    const bool is_plain = std::all_of(prompt->domain.begin(), prompt->domain.end(), [](char c) {
      return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
    });
    if (prompt->domain.empty() || prompt->domain.size() > kMaxDomain || !is_plain) {
      return InvalidArgument("{}: domain: wanted 1 to {} bytes of text", where, kMaxDomain);
    }
  }
  if (line.contains("weight")) {
    const double weight = line["weight"].is_number() ? line["weight"].get<double>() : -1.0;
    if (!(weight > 0.0 && weight <= kMaxWeight)) {
      return InvalidArgument("{}: weight: wanted a number above 0, at most {}", where, kMaxWeight);
    }
    prompt->weight = weight;
  }
  return OkStatus();
}

StatusOr<std::vector<ChatTurn>> ReadTurns(const json& messages, const std::string& where) {
  if (!messages.is_array() || messages.empty()) {
    return InvalidArgument("{}: messages: wanted a list of role and content", where);
  }
  std::vector<ChatTurn> turns;
  for (const json& message : messages) {
    ChatTurn turn;
    HEADROOM_ASSIGN_OR_RETURN(turn.role, ReadStringField(message, "role", where));
    HEADROOM_ASSIGN_OR_RETURN(turn.content, ReadStringField(message, "content", where));
    turns.push_back(std::move(turn));
  }
  return turns;
}

StatusOr<std::vector<TokenSpan>> ReadSpans(const json& line, const std::string& where) {
  const std::string wanted =
      fmt::format("{}: needles: wanted a list of objects with whole numbers start and end", where);
  std::vector<TokenSpan> spans;
  if (!line.contains("needles")) {
    return spans;
  }
  if (!line["needles"].is_array()) {
    return InvalidArgument("{}", wanted);
  }
  for (const json& span : line["needles"]) {
    const auto whole = [&span](const char* name) {
      return span.is_object() && span.contains(name) && span[name].is_number_integer() &&
             span[name].get<double>() >= 0 && span[name].get<double>() < 1e9;
    };
    if (!whole("start") || !whole("end")) {
      return InvalidArgument("{}", wanted);
    }
    spans.push_back({.begin = span["start"].get<int32_t>(), .end = span["end"].get<int32_t>()});
  }
  return spans;
}

// Ids with something hidden in them: a probe, and a prompt too.
Status AddProbeLine(NeedlePrompt needle, std::vector<TokenSpan> spans, const std::string& where,
                    const PromptLimits& limits, ProfilePrompt prompt, ProfileInput* input) {
  needle.id = prompt.id;
  needle.length = static_cast<int32_t>(needle.ids.size() + needle.answer.size());
  auto probe = MakeIdProbe(needle, std::move(spans));
  if (!probe.ok()) {
    return InvalidArgument("{}: {}", where, StatusMessage(probe.status()));
  }
  if (probe->ids.size() > static_cast<size_t>(limits.max_tokens)) {
    return InvalidArgument("{}: {} tokens with the answer, wanted at most {}", where,
                           probe->ids.size(), limits.max_tokens);
  }
  prompt.ids = probe->ids;
  input->probes.push_back(std::move(probe).value());
  input->needles.push_back(std::move(needle));
  AddPrompt(std::move(prompt), limits, input);
  return OkStatus();
}

Status AddContextLine(const json& line, const std::string& where, const PromptLimits& limits,
                      ProfilePrompt prompt, ProfileInput* input) {
  NeedlePrompt needle;
  HEADROOM_ASSIGN_OR_RETURN(needle.ids, ReadIdField(line, "context", where, limits.vocab_size));
  HEADROOM_ASSIGN_OR_RETURN(const auto question,
                            ReadIdField(line, "question", where, limits.vocab_size));
  HEADROOM_ASSIGN_OR_RETURN(needle.answer, ReadIdField(line, "answer", where, limits.vocab_size));
  HEADROOM_ASSIGN_OR_RETURN(auto spans, ReadSpans(line, where));
  needle.split = static_cast<int32_t>(needle.ids.size());
  needle.ids.insert(needle.ids.end(), question.begin(), question.end());
  needle.content_end = static_cast<int32_t>(needle.ids.size());
  return AddProbeLine(std::move(needle), std::move(spans), where, limits, std::move(prompt), input);
}

Status AddIdLine(const json& line, const std::string& where, const PromptLimits& limits,
                 ProfilePrompt prompt, ProfileInput* input) {
  HEADROOM_ASSIGN_OR_RETURN(prompt.ids, ReadIdField(line, "token_ids", where, limits.vocab_size));
  std::vector<int32_t> continuation;
  if (line.contains("continuation")) {
    HEADROOM_ASSIGN_OR_RETURN(continuation,
                              ReadIdField(line, "continuation", where, limits.vocab_size));
  }
  if (!line.contains("needles")) {
    prompt.ids.insert(prompt.ids.end(), continuation.begin(), continuation.end());
    AddPrompt(std::move(prompt), limits, input);
    return OkStatus();
  }
  HEADROOM_ASSIGN_OR_RETURN(auto spans, ReadSpans(line, where));
  if (continuation.empty() || spans.empty()) {
    return InvalidArgument("{}: needles: wanted at least one, and a continuation with the answer",
                           where);
  }
  NeedlePrompt needle;
  needle.ids = prompt.ids;
  needle.content_end = static_cast<int32_t>(needle.ids.size());
  // Where the question begins is not said: the rows that ask are the last one and the answer's.
  needle.split = needle.content_end - 1;
  needle.answer = std::move(continuation);
  return AddProbeLine(std::move(needle), std::move(spans), where, limits, std::move(prompt), input);
}

Status AddTextLine(const json& line, const std::string& where, const PromptLimits& limits,
                   ProfilePrompt prompt, ProfileInput* input) {
  if (limits.format == nullptr) {
    return InvalidArgument("{}: the model has no tokenizer, wanted token_ids", where);
  }
  if (line.contains("needles")) {
    return InvalidArgument("{}: needles: wanted token_ids beside them, spans count tokens", where);
  }
  std::string continuation;
  if (line.contains("continuation")) {
    HEADROOM_ASSIGN_OR_RETURN(continuation, ReadStringField(line, "continuation", where));
  }
  if (line.contains("messages")) {
    HEADROOM_ASSIGN_OR_RETURN(const auto turns, ReadTurns(line["messages"], where));
    auto ids = EncodeConversation(*limits.format, turns);
    if (!ids.ok()) {
      return InvalidArgument("{}: {}", where, StatusMessage(ids.status()));
    }
    prompt.ids = std::move(ids).value();
    const auto more = limits.format->tokenizer.Encode(continuation, /*add_bos=*/false,
                                                      /*parse_special=*/false);
    prompt.ids.insert(prompt.ids.end(), more.begin(), more.end());
  } else {
    HEADROOM_ASSIGN_OR_RETURN(const std::string text, ReadStringField(line, "text", where));
    if ((text + continuation).find_first_not_of(" \t\r\n") == std::string::npos) {
      ++input->num_blank;
      return OkStatus();
    }
    prompt.ids = EncodePlainText(*limits.format, text + continuation);
  }
  AddPrompt(std::move(prompt), limits, input);
  return OkStatus();
}

}  // namespace

Status ReadPromptLines(std::string_view text, const std::string& source, const PromptLimits& limits,
                       ProfileInput* input) {
  std::set<std::string> ids;
  for (const ProfilePrompt& prompt : input->prompts) {
    ids.insert(prompt.id);
  }
  return ForEachJsonLine(text, source, [&](const json& line, const std::string& where) -> Status {
    HEADROOM_RETURN_IF_ERROR(CheckMembers(line, where));
    ProfilePrompt prompt;
    HEADROOM_RETURN_IF_ERROR(ReadLabels(line, where, &prompt));
    if (!ids.insert(prompt.id).second) {
      return InvalidArgument("{}: the id \"{}\" twice", where, prompt.id.substr(0, 80));
    }
    if (line.contains("context")) {
      return AddContextLine(line, where, limits, std::move(prompt), input);
    }
    return line.contains("token_ids") ? AddIdLine(line, where, limits, std::move(prompt), input)
                                      : AddTextLine(line, where, limits, std::move(prompt), input);
  });
}

}  // namespace headroom::profiler
