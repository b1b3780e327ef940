#include "server/http/openai_format.h"

#include <algorithm>

namespace headroom::server {
namespace {

Json Envelope(const AnswerContext& context, bool chunk) {
  Json json;
  json["id"] = context.id;
  if (context.endpoint == Endpoint::kChatCompletions) {
    json["object"] = chunk ? "chat.completion.chunk" : "chat.completion";
  } else {
    json["object"] = "text_completion";
  }
  json["created"] = context.created_unix_s;
  json["model"] = context.model;
  return json;
}

const char* KvModeName(engine::KvMode mode) {
  switch (mode) {
    case engine::KvMode::kBudget:
      return "budget";
    case engine::KvMode::kRecovery:
      return "recovery";
    case engine::KvMode::kBoth:
      return "both";
  }
  return "";
}

const char* FinishText(engine::FinishReason reason) {
  return reason == engine::FinishReason::kStop ? "stop" : "length";
}

// What ended the choice: a stop string, a token id, or null.
Json StopReason(const engine::RequestEvent& event) {
  if (event.stop_string.has_value()) {
    return *event.stop_string;
  }
  if (event.stop_token.has_value()) {
    return *event.stop_token;
  }
  return nullptr;
}

std::string TokenText(const AnswerContext& context, int32_t token) {
  const models::Tokenizer* tokenizer = context.runtime->tokenizer();
  if (tokenizer == nullptr) {
    return fmt::format("token_id:{}", token);
  }
  const std::string_view bytes = tokenizer->TokenBytes(token);
  return std::string(bytes.empty() ? tokenizer->TokenPiece(token) : bytes);
}

Json TokenBytesJson(const std::string& text) {
  Json bytes = Json::array();
  for (const char c : text) {
    bytes.push_back(static_cast<int>(static_cast<unsigned char>(c)));
  }
  return bytes;
}

Json ChatLogprobs(const AnswerContext& context, const std::vector<engine::SampledToken>& tokens) {
  Json content = Json::array();
  for (const engine::SampledToken& sampled : tokens) {
    const std::string text = TokenText(context, sampled.token);
    Json entry;
    entry["token"] = text;
    entry["logprob"] = sampled.logprob;
    entry["bytes"] = TokenBytesJson(text);
    entry["top_logprobs"] = Json::array();
    for (const engine::TokenLogprob& top : sampled.top) {
      const std::string top_text = TokenText(context, top.token);
      entry["top_logprobs"].push_back({{"token", top_text},
                                       {"logprob", top.logprob},
                                       {"bytes", TokenBytesJson(top_text)}});
    }
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}};
}

Json CompletionLogprobs(const AnswerContext& context,
                        const std::vector<engine::SampledToken>& tokens, int64_t text_offset) {
  Json result = {{"tokens", Json::array()},
                 {"token_logprobs", Json::array()},
                 {"top_logprobs", Json::array()},
                 {"text_offset", Json::array()}};
  for (const engine::SampledToken& sampled : tokens) {
    const std::string text = TokenText(context, sampled.token);
    result["tokens"].push_back(text);
    result["token_logprobs"].push_back(sampled.logprob);
    Json top = Json::object();
    for (const engine::TokenLogprob& entry : sampled.top) {
      top[TokenText(context, entry.token)] = entry.logprob;
    }
    result["top_logprobs"].push_back(std::move(top));
    result["text_offset"].push_back(text_offset);
    text_offset += static_cast<int64_t>(text.size());
  }
  return result;
}

Json Logprobs(const AnswerContext& context, const std::vector<engine::SampledToken>& tokens,
              int64_t text_offset) {
  return context.endpoint == Endpoint::kChatCompletions
             ? ChatLogprobs(context, tokens)
             : CompletionLogprobs(context, tokens, text_offset);
}

size_t PromptOf(const AnswerContext& context, size_t index) {
  return index / static_cast<size_t>(context.submission->num_choices_per_prompt);
}

bool ReturnsIds(const AnswerContext& context) {
  return context.return_token_ids || context.runtime->tokenizer() == nullptr;
}

Json Usage(const AnswerContext& context, const std::vector<ChoiceState>& choices) {
  int64_t prompt_tokens = 0;
  for (const std::vector<int32_t>& ids : context.submission->prompt_ids) {
    prompt_tokens += static_cast<int64_t>(ids.size());
  }
  int64_t completion_tokens = 0;
  for (const ChoiceState& choice : choices) {
    completion_tokens += choice.terminal.usage.completion_tokens;
  }
  return {{"prompt_tokens", prompt_tokens},
          {"completion_tokens", completion_tokens},
          {"total_tokens", prompt_tokens + completion_tokens}};
}

}  // namespace

std::string ErrorBody(const ApiError& error) {
  Json body;
  body["error"]["message"] = error.message;
  body["error"]["type"] = error.type;
  body["error"]["param"] = error.param.empty() ? Json(nullptr) : Json(error.param);
  body["error"]["code"] = error.code;
  return DumpJson(body);
}

void Accumulate(const engine::RequestEvent& event, ChoiceState* choice) {
  choice->text += event.text;
  for (const engine::SampledToken& sampled : event.tokens) {
    choice->token_ids.push_back(sampled.token);
    choice->logprobs.push_back(sampled);
  }
  if (event.kind == engine::RequestEvent::Kind::kFinished) {
    choice->finished = true;
    choice->terminal = event;
  }
}

Json ReceiptJson(const ResolvedBudget& budget, const engine::KvReceipt& receipt) {
  Json json;
  json["policy"] = receipt.policy;
  json["head_map"] = budget.head_map.empty() ? Json(nullptr) : Json(budget.head_map);
  json["asked"] = Json::object();
  Json sources = Json::object();
  for (const ResolvedBudget::Field& field : budget.asked) {
    json["asked"][field.name] = Json::parse(field.value_text, nullptr, false);
    sources[field.name] = field.source;
  }
  const engine::KvPolicySpec& spec = budget.spec;
  Json applied;
  applied["kv_policy"] = receipt.policy;
  applied["kv_retention"] = Json::parse(RatioText(receipt.retention_ppm));
  applied["tsp_ratio"] = Json::parse(RatioText(receipt.tsp_ppm));
  // What does not act on a short prompt is not applied.
  if (spec.retention_tokens.has_value() && receipt.prompt_tokens >= spec.min_prompt) {
    applied["kv_retention_tokens"] = *spec.retention_tokens;
  }
  if (spec.tsp_tokens.has_value() && receipt.prompt_tokens >= spec.tsp_min_prompt) {
    applied["tsp_tokens"] = *spec.tsp_tokens;
  }
  applied[spec.window_raw ? "kv_window_raw" : "kv_window"] = spec.window;
  applied["kv_pool"] = spec.pool == kernels::PoolKind::kMax ? "max" : "avg";
  applied["kv_pool_width"] = spec.pool_width;
  applied["kv_sink_tokens"] = spec.sink_tokens;
  applied["kv_min_prompt"] = spec.min_prompt;
  applied["tsp_min_prompt"] = spec.tsp_min_prompt;
  applied["kv_decode"] = spec.decode == engine::KvDecode::kTyped ? "typed" : "grow";
  if (!budget.head_map.empty()) {
    applied["kv_mode"] = KvModeName(spec.mode);
    applied["kv_scope"] = spec.scope == engine::KvScope::kLayer ? "layer" : "model";
    applied["kv_head_check"] = spec.head_check;
  }
  if (budget.applied_recovery.has_value()) {
    applied["kv_recovery"] = Json::parse(*budget.applied_recovery, nullptr, false);
  }
  for (const auto& [name, value_text] : budget.applied_options) {
    applied["kv_options"][name] = Json::parse(value_text, nullptr, false);
  }
  json["applied"] = std::move(applied);
  json["sources"] = std::move(sources);
  std::vector<std::string> reasons = budget.reasons;
  for (const std::string& reason : receipt.reasons) {
    if (std::find(reasons.begin(), reasons.end(), reason) == reasons.end()) {
      reasons.push_back(reason);
    }
  }
  json["reasons"] = reasons;
  json["prompt_tokens"] = receipt.prompt_tokens;
  json["propagated_tokens"] = receipt.propagated_tokens;
  json["entries"] = receipt.entries;
  json["entries_full"] = receipt.entries_full;
  json["bytes"] = receipt.bytes;
  json["bytes_full"] = receipt.bytes_full;
  json["pages"] = receipt.pages;
  json["compress_ms"] = receipt.compress_ms;
  return json;
}

std::vector<std::string> StreamChunks(const AnswerContext& context, size_t index,
                                      const engine::RequestEvent& event, ChoiceState* choice) {
  std::vector<std::string> chunks;
  const bool chat = context.endpoint == Endpoint::kChatCompletions;
  const auto make = [&](Json body, const Json& finish) {
    Json json = Envelope(context, /*chunk=*/true);
    body["index"] = index;
    body["finish_reason"] = finish;
    json["choices"] = Json::array({std::move(body)});
    if (context.include_usage) {
      json["usage"] = nullptr;
    }
    return json;
  };
  if (!choice->role_sent) {
    choice->role_sent = true;
    Json body;
    if (chat) {
      body["delta"] = {{"role", "assistant"}, {"content", ""}};
    } else {
      body["text"] = "";
    }
    Json json = make(std::move(body), nullptr);
    if (context.return_token_ids) {
      (chat ? json : json["choices"][0])["prompt_token_ids"] =
          context.submission->prompt_ids[PromptOf(context, index)];
    }
    if (chat || context.return_token_ids) {
      chunks.push_back(DumpJson(json));
    }
  }
  const bool finished = event.kind == engine::RequestEvent::Kind::kFinished;
  const bool wants_logprobs =
      !event.tokens.empty() && context.submission->num_logprobs >= 0;
  const bool has_news = !event.text.empty() || wants_logprobs ||
                        (ReturnsIds(context) && !event.tokens.empty());
  if (!has_news && !finished) {
    return chunks;
  }
  Json body;
  if (chat) {
    body["delta"] = Json::object();
    if (!event.text.empty() || !finished) {
      body["delta"]["content"] = event.text;
    }
  } else {
    body["text"] = event.text;
  }
  if (wants_logprobs) {
    body["logprobs"] = Logprobs(context, event.tokens, choice->text_offset);
  } else {
    body["logprobs"] = nullptr;
  }
  if (ReturnsIds(context)) {
    body["token_ids"] = Json::array();
    for (const engine::SampledToken& sampled : event.tokens) {
      body["token_ids"].push_back(sampled.token);
    }
  }
  choice->text_offset += static_cast<int64_t>(event.text.size());
  if (finished) {
    body["stop_reason"] = StopReason(event);
  }
  Json json = make(std::move(body), finished ? Json(FinishText(event.finish_reason)) : Json());
  if (finished) {
    json["kv"] = ReceiptJson(context.submission->budgets[PromptOf(context, index)], event.receipt);
  }
  chunks.push_back(DumpJson(json));
  return chunks;
}

std::string UsageChunk(const AnswerContext& context, const std::vector<ChoiceState>& choices) {
  Json json = Envelope(context, /*chunk=*/true);
  json["choices"] = Json::array();
  json["usage"] = Usage(context, choices);
  return DumpJson(json);
}

std::string AnswerBody(const AnswerContext& context, const std::vector<ChoiceState>& choices) {
  const bool chat = context.endpoint == Endpoint::kChatCompletions;
  Json json = Envelope(context, /*chunk=*/false);
  json["choices"] = Json::array();
  for (size_t index = 0; index < choices.size(); ++index) {
    const ChoiceState& choice = choices[index];
    const size_t prompt = PromptOf(context, index);
    Json body;
    body["index"] = index;
    if (chat) {
      body["message"] = {{"role", "assistant"}, {"content", choice.text}};
    } else {
      body["text"] = choice.text;
    }
    body["logprobs"] = context.submission->num_logprobs >= 0
                           ? Logprobs(context, choice.logprobs, 0)
                           : Json(nullptr);
    body["finish_reason"] = FinishText(choice.terminal.finish_reason);
    body["stop_reason"] = StopReason(choice.terminal);
    if (ReturnsIds(context)) {
      body["token_ids"] = choice.token_ids;
      if (!chat) {
        body["prompt_token_ids"] = context.submission->prompt_ids[prompt];
      }
    }
    if (context.submission->prompt_ids.size() > 1) {
      body["kv"] = ReceiptJson(context.submission->budgets[prompt], choice.terminal.receipt);
    }
    json["choices"].push_back(std::move(body));
  }
  if (chat && context.return_token_ids) {
    json["prompt_token_ids"] = context.submission->prompt_ids[0];
  }
  json["usage"] = Usage(context, choices);
  json["kv"] = ReceiptJson(context.submission->budgets[0], choices[0].terminal.receipt);
  return DumpJson(json);
}

std::string ModelBody(const Runtime& runtime) {
  Json json;
  json["id"] = runtime.model_name();
  json["object"] = "model";
  json["created"] = runtime.created_unix_s();
  json["owned_by"] = "headroom";
  json["root"] = runtime.model_name();
  json["parent"] = nullptr;
  json["max_model_len"] = runtime.max_context();
  json["context_length"] = runtime.max_context();
  if (const LoadedHeadMap* loaded = runtime.head_map()) {
    const auto counts = engine::CountHeadTypes(*loaded->map);
    Json types = Json::object();
    for (size_t i = 0; i < counts.size(); ++i) {
      types[engine::HeadTypeName(static_cast<engine::HeadType>(i))] = counts[i];
    }
    json["head_map"] = {{"hash", loaded->info.hash},
                        {"validation", loaded->map->validation.status},
                        {"prefer", runtime.options().prefer},
                        {"heads", std::move(types)}};
  } else {
    json["head_map"] = nullptr;
  }
  json["meta"] = {{"n_ctx_train", runtime.config().max_position_embeddings},
                  {"n_params", runtime.num_parameters()},
                  {"vocab_size", runtime.config().vocab_size},
                  {"tsp_layer", runtime.shape().tsp_layer},
                  {"kv_policies", runtime.policies().Names()},
                  {"has_chat_template", runtime.chat_template() != nullptr}};
  return DumpJson(json);
}

std::string ModelListBody(const Runtime& runtime) {
  Json json;
  json["object"] = "list";
  json["data"] = Json::array({Json::parse(ModelBody(runtime))});
  return DumpJson(json);
}

}  // namespace headroom::server
