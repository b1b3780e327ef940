#include "server/prompt_encoder.h"

#include <ctime>
#include <string>
#include <utility>

namespace headroom::server {
namespace {

std::string PieceOf(const models::Tokenizer& tokenizer, int32_t id) {
  return id < 0 ? std::string() : std::string(tokenizer.TokenPiece(id));
}

std::variant<EncodedPrompt, ApiError> EncodeIds(const TokenPrompt& prompt,
                                                const Runtime& runtime) {
  EncodedPrompt encoded;
  encoded.ids.reserve(prompt.ids.size());
  for (int64_t id : prompt.ids) {
    if (id < 0 || id >= runtime.config().vocab_size) {
      return BadRequest("invalid_value",
                        fmt::format("prompt: token id {}, wanted 0 to {}", id,
                                    runtime.config().vocab_size - 1),
                        "prompt");
    }
    encoded.ids.push_back(static_cast<int32_t>(id));
  }
  encoded.content_end = static_cast<int32_t>(encoded.ids.size());
  return encoded;
}

std::variant<EncodedPrompt, ApiError> EncodeText(const TextPrompt& prompt,
                                                 const Runtime& runtime) {
  if (runtime.tokenizer() == nullptr) {
    return BadRequest("unsupported_parameter",
                      "prompt: this model has no tokenizer; send a list of token ids", "prompt");
  }
  EncodedPrompt encoded;
  encoded.ids = runtime.tokenizer()->Encode(prompt.text, runtime.tokenizer()->add_bos(),
                                            /*parse_special=*/false);
  encoded.content_end = static_cast<int32_t>(encoded.ids.size());
  return encoded;
}

ApiError TemplateError(const Status& status) {
  if (status.code() == StatusCode::kResourceExhausted) {
    return BadRequest("template_limit", StatusMessage(status), "messages");
  }
  if (status.code() == StatusCode::kInvalidArgument) {
    return BadRequest("invalid_messages",
                      fmt::format("messages: the model's chat template refuses them: {}",
                                  StatusMessage(status)),
                      "messages");
  }
  return FromStatus(status);
}

// Seconds since 1970 as the local wall clock shows them, for templates that print today's date.
int64_t LocalTimeS() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return static_cast<int64_t>(now) + local.tm_gmtoff;
}

std::variant<EncodedPrompt, ApiError> EncodeChat(const ChatPrompt& prompt, const Runtime& runtime,
                                                 const Clock& clock) {
  if (runtime.tokenizer() == nullptr || runtime.chat_template() == nullptr) {
    const std::string& why = runtime.chat_template_error();
    return BadRequest("unsupported_parameter",
                      why.empty()
                          ? "messages: this model has no chat template; use /v1/completions"
                          : fmt::format("messages: the model's chat template is unusable: {}", why),
                      "messages");
  }
  const models::Tokenizer& tokenizer = *runtime.tokenizer();
  models::ChatInput input;
  input.messages = prompt.messages;
  input.tools = prompt.tools;
  input.local_time_s = LocalTimeS();
  input.bos_token = PieceOf(tokenizer, tokenizer.bos_id());
  input.eos_token = PieceOf(tokenizer, tokenizer.eos_id());
  StatusOr<models::ProvenancedText> text = runtime.chat_template()->Render(input, clock);
  if (!text.ok()) {
    return TemplateError(text.status());
  }
  models::Encoding encoding = tokenizer.Encode(*text);
  if (tokenizer.add_bos() && (encoding.ids.empty() || encoding.ids[0] != tokenizer.bos_id())) {
    encoding.ids.insert(encoding.ids.begin(), tokenizer.bos_id());
    encoding.from_message.insert(encoding.from_message.begin(), 0);
  }
  EncodedPrompt encoded;
  encoded.ids = std::move(encoding.ids);
  encoded.content_end = static_cast<int32_t>(encoded.ids.size());
  for (size_t i = encoding.from_message.size(); i > 0; --i) {
    if (encoding.from_message[i - 1] != 0) {
      encoded.content_end = static_cast<int32_t>(i);
      break;
    }
  }
  return encoded;
}

}  // namespace

std::variant<EncodedPrompt, ApiError> EncodePrompt(const Prompt& prompt, const Runtime& runtime,
                                                   const Clock& clock) {
  auto encoded = [&]() -> std::variant<EncodedPrompt, ApiError> {
    if (const auto* ids = std::get_if<TokenPrompt>(&prompt)) {
      return EncodeIds(*ids, runtime);
    }
    if (const auto* text = std::get_if<TextPrompt>(&prompt)) {
      return EncodeText(*text, runtime);
    }
    return EncodeChat(std::get<ChatPrompt>(prompt), runtime, clock);
  }();
  if (const auto* ok = std::get_if<EncodedPrompt>(&encoded); ok != nullptr && ok->ids.empty()) {
    const char* param = std::holds_alternative<ChatPrompt>(prompt) ? "messages" : "prompt";
    return BadRequest("invalid_value", fmt::format("{}: wanted at least one token", param), param);
  }
  return encoded;
}

}  // namespace headroom::server
