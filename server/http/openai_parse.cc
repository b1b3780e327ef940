#include "server/http/openai_parse.h"

#include <array>
#include <charconv>
#include <optional>

#include "models/chat_template/value_json.h"
#include "server/budget_resolver.h"
#include "server/http/openai_budget.h"
#include "server/http/openai_json.h"

namespace headroom::server {
namespace {

constexpr size_t kMaxMessages = 4096;
constexpr size_t kMaxPrompts = 128;
constexpr size_t kMaxIds = size_t{1} << 24;

void ReadStrings(ObjectReader& reader, const char* name, std::vector<std::string>* out) {
  const Json* value = reader.Find(name);
  if (value == nullptr) {
    return;
  }
  if (value->is_string()) {
    out->push_back(value->get<std::string>());
    return;
  }
  if (!value->is_array()) {
    return reader.Fail(name, "a string or a list of strings");
  }
  for (const Json& item : *value) {
    if (!item.is_string()) {
      return reader.Fail(name, "a string or a list of strings");
    }
    out->push_back(item.get<std::string>());
  }
}

bool ReadIds(const Json& value, std::vector<int64_t>* out) {
  if (!value.is_array() || value.size() > kMaxIds) {
    return false;
  }
  out->reserve(value.size());
  for (const Json& item : value) {
    if (!item.is_number_integer() ||
        (item.is_number_unsigned() && item.get<uint64_t>() > INT64_MAX)) {
      return false;
    }
    out->push_back(item.get<int64_t>());
  }
  return true;
}

void ReadLogitBias(ObjectReader& reader, GenerationRequest* request) {
  const Json* value = reader.Find("logit_bias");
  if (value == nullptr) {
    return;
  }
  if (!value->is_object()) {
    return reader.Fail("logit_bias", "an object of token id to number");
  }
  for (const auto& [key, bias] : value->items()) {
    int64_t token = 0;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), token);
    if (parsed.ec != std::errc() || parsed.ptr != key.data() + key.size() || !bias.is_number()) {
      return reader.Fail("logit_bias", "an object of token id to number");
    }
    request->logit_bias.emplace_back(token, bias.get<double>());
  }
}

void ReadStreamOptions(ObjectReader& reader, GenerationRequest* request) {
  reader.Read("stream", &request->stream);
  const Json* options = reader.Find("stream_options");
  if (options == nullptr) {
    return;
  }
  if (!options->is_object()) {
    return reader.Fail("stream_options", "an object");
  }
  if (!request->stream) {
    return reader.Refuse(BadRequest("invalid_value",
                                    "stream_options: wanted only with stream true",
                                    "stream_options"));
  }
  ObjectReader nested(*options, "stream_options.");
  nested.Read("include_usage", &request->include_usage);
  if (nested.error().has_value()) {
    reader.Refuse(*nested.error());
  }
}

// Fields whose meaning is known and not built: present with anything but their neutral value.
void RefuseUnsupported(ObjectReader& reader, Endpoint endpoint) {
  const auto refuse = [&](const char* name) {
    reader.Refuse(BadRequest("unsupported_parameter",
                             fmt::format("{}: this server does not support it", name), name));
  };
  for (const char* name : {"tools", "functions", "modalities", "audio", "prediction"}) {
    const Json* value = reader.Find(name);
    const bool neutral = value == nullptr || (value->is_array() && value->empty()) ||
                         *value == Json::array({"text"});
    if (!neutral) {
      refuse(name);
    }
  }
  if (const Json* format = reader.Find("response_format")) {
    if (!format->is_object() || format->value("type", Json()) != "text") {
      refuse("response_format");
    }
  }
  for (const char* name : {"suffix", "guided_json", "guided_regex", "chat_template",
                           "prompt_logprobs", "use_beam_search", "continue_final_message"}) {
    const Json* value = reader.Find(name);
    if (value != nullptr && *value != Json("") && *value != Json(false)) {
      refuse(name);
    }
  }
  const Json* opens_answer = reader.Find("add_generation_prompt");
  if (opens_answer != nullptr && *opens_answer != Json(true)) {
    refuse("add_generation_prompt");
  }
  std::optional<int64_t> best_of;
  reader.Read("best_of", &best_of);
  if (best_of.value_or(1) != 1) {
    refuse("best_of");
  }
  if (endpoint == Endpoint::kCompletions) {
    bool echo = false;
    reader.Read("echo", &echo);
    if (echo) {
      refuse("echo");
    }
  }
}

void ReadCommon(ObjectReader& reader, GenerationRequest* request) {
  std::optional<std::string> model;
  reader.Read("model", &model);
  request->model = model.value_or("");
  reader.Read("temperature", &request->temperature);
  reader.Read("top_p", &request->top_p);
  reader.Read("top_k", &request->top_k);
  reader.Read("min_p", &request->min_p);
  reader.Read("presence_penalty", &request->presence_penalty);
  reader.Read("frequency_penalty", &request->frequency_penalty);
  reader.Read("repetition_penalty", &request->repetition_penalty);
  reader.Read("seed", &request->seed);
  reader.Read("n", &request->n);
  reader.Read("min_tokens", &request->min_tokens);
  reader.Read("ignore_eos", &request->ignore_eos);
  reader.Read("include_stop_str_in_output", &request->include_stop_str_in_output);
  reader.Read("return_token_ids", &request->return_token_ids);
  reader.Read("timeout", &request->timeout_s);
  ReadLogitBias(reader, request);
  ReadStrings(reader, "stop", &request->stop);
  if (const Json* ids = reader.Find("stop_token_ids")) {
    if (!ReadIds(*ids, &request->stop_token_ids)) {
      reader.Fail("stop_token_ids", "a list of token ids");
    }
  }
  ReadStreamOptions(reader, request);
  std::optional<std::string> user;
  reader.Read("user", &user);
  ReadBudgetBody(reader, &request->body_budget);
}

// One message with its content as templates want it: text parts joined, developer as system.
std::optional<ApiError> NormaliseMessage(size_t index, Json* message) {
  const auto fail = [&](const char* field, const char* wanted) {
    const std::string param = fmt::format("messages[{}]{}", index, field);
    return BadRequest("invalid_type", fmt::format("{}: wanted {}", param, wanted), param);
  };
  if (!message->is_object()) {
    return fail("", "an object");
  }
  const auto role = message->find("role");
  if (role == message->end() || !role->is_string()) {
    return fail(".role", "a string");
  }
  if (*role == "developer") {
    *role = "system";
  }
  const auto content = message->find("content");
  if (content == message->end() || content->is_null()) {
    if (*role == "user" || *role == "system") {
      return fail(".content", "a string or a list of text parts");
    }
    (*message)["content"] = "";
    return std::nullopt;
  }
  if (content->is_string()) {
    return std::nullopt;
  }
  if (!content->is_array()) {
    return fail(".content", "a string or a list of text parts");
  }
  std::string joined;
  for (size_t part = 0; part < content->size(); ++part) {
    const Json& item = (*content)[part];
    if (!item.is_object() || item.value("type", Json()) != "text" || !item.contains("text") ||
        !item["text"].is_string()) {
      return fail(".content", "text parts only");
    }
    joined += (part > 0 ? "\n" : "") + item["text"].get<std::string>();
  }
  *content = joined;
  return std::nullopt;
}

void ReadMessages(ObjectReader& reader, GenerationRequest* request) {
  const Json* value = reader.Find("messages");
  if (value == nullptr || !value->is_array() || value->empty()) {
    return reader.Fail("messages", "a list of at least one message");
  }
  if (value->size() > kMaxMessages) {
    return reader.Refuse(BadRequest(
        "invalid_value",
        fmt::format("messages: got {}, wanted at most {}", value->size(), kMaxMessages),
        "messages"));
  }
  Json messages = *value;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (auto error = NormaliseMessage(i, &messages[i])) {
      return reader.Refuse(*error);
    }
  }
  auto converted = models::ValueFromJson(DumpJson(messages), /*from_message=*/true);
  if (!converted.ok()) {
    return reader.Fail("messages", "well-formed messages");
  }
  ChatPrompt prompt;
  prompt.messages = std::move(converted).value();
  request->prompts.emplace_back(std::move(prompt));
}

void ReadChat(ObjectReader& reader, GenerationRequest* request) {
  ReadMessages(reader, request);
  reader.Read("max_tokens", &request->max_tokens);
  std::optional<int64_t> max_completion_tokens;
  reader.Read("max_completion_tokens", &max_completion_tokens);
  if (max_completion_tokens.has_value()) {
    request->max_tokens = max_completion_tokens;
  }
  bool logprobs = false;
  std::optional<int64_t> top_logprobs;
  reader.Read("logprobs", &logprobs);
  reader.Read("top_logprobs", &top_logprobs);
  if (top_logprobs.value_or(0) != 0 && !logprobs) {
    reader.Refuse(BadRequest("invalid_value", "top_logprobs: wanted only with logprobs true",
                             "top_logprobs"));
  }
  if (logprobs) {
    request->num_logprobs = top_logprobs.value_or(0);
  }
}

void ReadPrompts(ObjectReader& reader, GenerationRequest* request) {
  constexpr const char* kWanted =
      "a string, a list of strings, a list of token ids, or a list of such lists";
  const Json* value = reader.Find("prompt");
  if (value == nullptr) {
    return reader.Fail("prompt", kWanted);
  }
  if (value->is_string()) {
    request->prompts.emplace_back(TextPrompt{value->get<std::string>()});
    return;
  }
  if (!value->is_array() || value->empty()) {
    return reader.Fail("prompt", kWanted);
  }
  if (value->front().is_number()) {
    TokenPrompt ids;
    if (!ReadIds(*value, &ids.ids)) {
      return reader.Fail("prompt", kWanted);
    }
    request->prompts.emplace_back(std::move(ids));
    return;
  }
  if (value->size() > kMaxPrompts) {
    return reader.Refuse(BadRequest(
        "invalid_value",
        fmt::format("prompt: got {} prompts, wanted at most {}", value->size(), kMaxPrompts),
        "prompt"));
  }
  for (const Json& item : *value) {
    TokenPrompt ids;
    if (item.is_string()) {
      request->prompts.emplace_back(TextPrompt{item.get<std::string>()});
    } else if (ReadIds(item, &ids.ids)) {
      request->prompts.emplace_back(std::move(ids));
    } else {
      return reader.Fail("prompt", kWanted);
    }
  }
}

void ReadCompletions(ObjectReader& reader, GenerationRequest* request) {
  ReadPrompts(reader, request);
  reader.Read("max_tokens", &request->max_tokens);
  reader.Read("logprobs", &request->num_logprobs);
}

}  // namespace

std::variant<ParsedBody, ApiError> ParseBody(Endpoint endpoint, std::string_view body) {
  auto parsed = ParseJson(body);
  if (auto* error = std::get_if<ApiError>(&parsed)) {
    return std::move(*error);
  }
  const Json& json = std::get<Json>(parsed);
  if (!json.is_object()) {
    return BadRequest("invalid_type", "the body: wanted a JSON object", "");
  }
  ParsedBody result;
  ObjectReader reader(json, "");
  ReadCommon(reader, &result.request);
  if (endpoint == Endpoint::kChatCompletions) {
    ReadChat(reader, &result.request);
  } else {
    ReadCompletions(reader, &result.request);
  }
  RefuseUnsupported(reader, endpoint);
  if (reader.error().has_value()) {
    return *reader.error();
  }
  result.num_unknown_fields =
      std::max<int64_t>(0, static_cast<int64_t>(json.size()) - reader.num_read());
  return result;
}

}  // namespace headroom::server
