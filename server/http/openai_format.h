// Engine events -> OpenAI-shaped JSON: bodies, stream chunks, errors, receipts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/request.h"
#include "server/api_error.h"
#include "server/budget_resolver.h"
#include "server/generation_service.h"
#include "server/http/openai_json.h"
#include "server/http/openai_parse.h"
#include "server/runtime.h"

namespace headroom::server {

// What is the same in every chunk of one answer.
struct AnswerContext {
  Endpoint endpoint = Endpoint::kChatCompletions;
  std::string id;  // chatcmpl-..., cmpl-...
  std::string model;
  int64_t created_unix_s = 0;
  bool return_token_ids = false;
  bool include_usage = false;
  const Runtime* runtime = nullptr;
  const Submission* submission = nullptr;
};

// One choice as it grows; for the non-streaming answer and for text offsets of logprobs.
struct ChoiceState {
  std::string text;
  std::vector<int32_t> token_ids;
  std::vector<engine::SampledToken> logprobs;  // one per token
  int64_t text_offset = 0;                     // bytes of text that chunks already carried
  bool role_sent = false;
  bool finished = false;
  engine::RequestEvent terminal;  // once finished
};

std::string ErrorBody(const ApiError& error);

// Adds an event's tokens and text to the choice.
void Accumulate(const engine::RequestEvent& event, ChoiceState* choice);

// The chunks (JSON, without SSE framing) that an event of choice `index` adds to a stream.
std::vector<std::string> StreamChunks(const AnswerContext& context, size_t index,
                                      const engine::RequestEvent& event, ChoiceState* choice);
// The usage chunk of a stream, after every choice has finished.
std::string UsageChunk(const AnswerContext& context, const std::vector<ChoiceState>& choices);

// The whole non-streaming answer.
std::string AnswerBody(const AnswerContext& context, const std::vector<ChoiceState>& choices);

// The `kv` receipt.
Json ReceiptJson(const ResolvedBudget& budget, const engine::KvReceipt& receipt);

// GET /v1/models, /v1/models/{id}.
std::string ModelListBody(const Runtime& runtime);
std::string ModelBody(const Runtime& runtime);

}  // namespace headroom::server
