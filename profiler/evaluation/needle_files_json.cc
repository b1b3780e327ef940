#include <algorithm>
#include <nlohmann/json.hpp>

#include "profiler/evaluation/json_lines_json.h"
#include "profiler/evaluation/needle_files.h"

namespace headroom::profiler {
namespace {

using nlohmann::json;

StatusOr<double> ReadNumber(const json& line, const char* name, double otherwise, double most,
                            const std::string& where) {
  if (!line.contains(name)) {
    return otherwise;
  }
  const json& value = line[name];
  if (!value.is_number() || !(value.get<double>() >= 0.0) || value.get<double>() > most) {
    return InvalidArgument("{}: {}: wanted a number from 0 to {}", where, name, most);
  }
  return value.get<double>();
}

StatusOr<std::string> ReadId(const json& line, const std::string& where) {
  return line.contains("id") ? ReadStringField(line, "id", where) : StatusOr<std::string>(where);
}

StatusOr<NeedlePrompt> ReadIdNeedle(const json& line, const std::string& where,
                                    int32_t vocab_size) {
  NeedlePrompt prompt;
  HEADROOM_ASSIGN_OR_RETURN(prompt.id, ReadId(line, where));
  HEADROOM_ASSIGN_OR_RETURN(prompt.ids, ReadIdField(line, "context", where, vocab_size));
  HEADROOM_ASSIGN_OR_RETURN(const auto question, ReadIdField(line, "question", where, vocab_size));
  HEADROOM_ASSIGN_OR_RETURN(prompt.answer, ReadIdField(line, "answer", where, vocab_size));
  const auto num_context = static_cast<double>(prompt.ids.size());
  HEADROOM_ASSIGN_OR_RETURN(const double begin,
                            ReadNumber(line, "needle_begin", 0.0, num_context, where));
  prompt.depth = begin / num_context;
  prompt.split = static_cast<int32_t>(prompt.ids.size());
  prompt.ids.insert(prompt.ids.end(), question.begin(), question.end());
  prompt.content_end = static_cast<int32_t>(prompt.ids.size());
  HEADROOM_ASSIGN_OR_RETURN(
      const double length,
      ReadNumber(line, "length", static_cast<double>(prompt.ids.size() + prompt.answer.size()),
                 1 << 24, where));
  prompt.length = static_cast<int32_t>(length);
  return prompt;
}

StatusOr<TextNeedle> ReadTextNeedle(const json& line, const std::string& where) {
  TextNeedle needle;
  HEADROOM_ASSIGN_OR_RETURN(needle.id, ReadId(line, where));
  HEADROOM_ASSIGN_OR_RETURN(needle.context, ReadStringField(line, "context", where));
  HEADROOM_ASSIGN_OR_RETURN(needle.question, ReadStringField(line, "question", where));
  HEADROOM_ASSIGN_OR_RETURN(needle.answer, ReadStringField(line, "answer", where));
  HEADROOM_ASSIGN_OR_RETURN(needle.depth, ReadNumber(line, "depth", 0.0, 1.0, where));
  HEADROOM_ASSIGN_OR_RETURN(const double length, ReadNumber(line, "length", 0.0, 1 << 24, where));
  needle.length = static_cast<int32_t>(length);
  if (needle.answer.empty() || needle.context.empty()) {
    return InvalidArgument("{}: wanted a context and an answer that are not empty", where);
  }
  return needle;
}

}  // namespace

StatusOr<NeedleLines> ParseNeedles(std::string_view text, const std::string& source,
                                   int32_t vocab_size, int32_t max_prompts) {
  std::vector<NeedlePrompt> ids;
  std::vector<TextNeedle> texts;
  const Status read =
      ForEachJsonLine(text, source, [&](const json& line, const std::string& where) -> Status {
        if (std::max(ids.size(), texts.size()) >= static_cast<size_t>(max_prompts)) {
          return OkStatus();
        }
        const bool is_text =
            line.is_object() && line.contains("context") && line["context"].is_string();
        if (is_text ? !ids.empty() : !texts.empty()) {
          return InvalidArgument("{}: prompts of text and of ids in one file", where);
        }
        if (is_text) {
          HEADROOM_ASSIGN_OR_RETURN(TextNeedle needle, ReadTextNeedle(line, where));
          texts.push_back(std::move(needle));
        } else {
          HEADROOM_ASSIGN_OR_RETURN(NeedlePrompt prompt, ReadIdNeedle(line, where, vocab_size));
          ids.push_back(std::move(prompt));
        }
        return OkStatus();
      });
  HEADROOM_RETURN_IF_ERROR(read);
  if (ids.empty() && texts.empty()) {
    return InvalidArgument("{}: wanted at least one prompt", source);
  }
  return texts.empty() ? NeedleLines(std::move(ids)) : NeedleLines(std::move(texts));
}

}  // namespace headroom::profiler
