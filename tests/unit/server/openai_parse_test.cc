#include "server/http/openai_parse.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <variant>

#include "models/chat_template/value_objects.h"

namespace headroom::server {
namespace {

constexpr Endpoint kChat = Endpoint::kChatCompletions;
constexpr Endpoint kText = Endpoint::kCompletions;

ParsedBody Parsed(Endpoint endpoint, std::string_view body) {
  auto result = ParseBody(endpoint, body);
  if (const auto* error = std::get_if<ApiError>(&result)) {
    ADD_FAILURE() << error->code << ": " << error->message << " for " << body.substr(0, 200);
    return {};
  }
  return std::move(std::get<ParsedBody>(result));
}

ApiError Refused(Endpoint endpoint, std::string_view body) {
  auto result = ParseBody(endpoint, body);
  if (std::holds_alternative<ParsedBody>(result)) {
    ADD_FAILURE() << "was not refused: " << body.substr(0, 200);
    return {};
  }
  return std::get<ApiError>(result);
}

// A completions body with more fields.
std::string TextBody(const std::string& fields) {
  return R"({"prompt": "p")" + (fields.empty() ? "" : ", " + fields) + "}";
}
std::string ChatBody(const std::string& fields) {
  return R"({"messages": [{"role": "user", "content": "q"}])" +
         (fields.empty() ? "" : ", " + fields) + "}";
}

std::string TextOf(const models::Value& message, const std::string& key) {
  const models::Value* value = message.dict() == nullptr ? nullptr : message.dict()->Find(key);
  return value == nullptr || value->text() == nullptr ? "<no text>" : value->text()->text;
}

TEST(ParseBodyTest, ReadsEveryFieldOfACompletion) {
  const GenerationRequest request =
      Parsed(kText, R"({"model": "m", "prompt": "text", "max_tokens": 7, "temperature": 0.5,
          "top_p": 0.9, "top_k": 40, "min_p": 0.1, "presence_penalty": 1, "frequency_penalty": -1,
          "repetition_penalty": 1.1, "seed": -9223372036854775808, "n": 3, "min_tokens": 2,
          "ignore_eos": true, "include_stop_str_in_output": true, "return_token_ids": true,
          "timeout": 2.5, "logprobs": 4, "stream": true, "stream_options": {"include_usage": true},
          "stop": ["a", "b"], "stop_token_ids": [1, 2], "logit_bias": {"5": -100, "6": 1.5},
          "user": "u", "kv_policy": "fastkv", "kv_retention": 0.29, "tsp_ratio": 1,
          "kv_retention_tokens": 10, "tsp_tokens": 11, "kv_window": 12, "kv_pool": "avg",
          "kv_pool_width": 5, "kv_sink_tokens": 0, "kv_min_prompt": 0, "tsp_min_prompt": 1,
          "kv_decode": "grow", "kv_strict": true, "kv_recovery": 0.9,
          "kv_options": {"a": 1, "b": 0.5, "c": true, "d": "e"}})")
          .request;
  EXPECT_EQ(request.model, "m");
  ASSERT_EQ(request.prompts.size(), 1u);
  EXPECT_EQ(std::get<TextPrompt>(request.prompts[0]).text, "text");
  EXPECT_EQ(request.max_tokens, 7);
  EXPECT_EQ(request.temperature, 0.5);
  EXPECT_EQ(request.top_p, 0.9);
  EXPECT_EQ(request.top_k, 40);
  EXPECT_EQ(request.min_p, 0.1);
  EXPECT_EQ(request.presence_penalty, 1);
  EXPECT_EQ(request.frequency_penalty, -1);
  EXPECT_EQ(request.repetition_penalty, 1.1);
  EXPECT_EQ(request.seed, INT64_MIN);
  EXPECT_EQ(request.n, 3);
  EXPECT_EQ(request.min_tokens, 2);
  EXPECT_TRUE(request.ignore_eos && request.include_stop_str_in_output);
  EXPECT_TRUE(request.return_token_ids && request.stream && request.include_usage);
  EXPECT_EQ(request.timeout_s, 2.5);
  EXPECT_EQ(request.num_logprobs, 4);
  EXPECT_EQ(request.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request.stop_token_ids, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(request.logit_bias, (std::vector<std::pair<int64_t, double>>{{5, -100}, {6, 1.5}}));
  const BudgetFields& budget = request.body_budget;
  EXPECT_EQ(budget.kv_policy, "fastkv");
  EXPECT_EQ(budget.kv_retention_ppm, 290'000);
  EXPECT_EQ(budget.tsp_ratio_ppm, 1'000'000);
  EXPECT_EQ(budget.kv_retention_tokens, 10);
  EXPECT_EQ(budget.tsp_tokens, 11);
  EXPECT_EQ(budget.kv_window, 12);
  EXPECT_EQ(budget.kv_pool, "avg");
  EXPECT_EQ(budget.kv_pool_width, 5);
  EXPECT_EQ(budget.kv_sink_tokens, 0);
  EXPECT_EQ(budget.kv_min_prompt, 0);
  EXPECT_EQ(budget.tsp_min_prompt, 1);
  EXPECT_EQ(budget.kv_decode, "grow");
  EXPECT_EQ(budget.kv_strict, true);
  EXPECT_EQ(budget.kv_recovery_ppm, 900'000);
  EXPECT_EQ(budget.kv_options,
            (std::vector<PolicyOption>{
                {"a", int64_t{1}}, {"b", 0.5}, {"c", true}, {"d", std::string("e")}}));
}

TEST(ParseBodyTest, NullIsAbsent) {
  for (const char* name : {"model",          "max_tokens", "temperature", "top_p",
                           "top_k",          "seed",       "n",           "stop",
                           "stop_token_ids", "logit_bias", "stream",      "stream_options",
                           "user",           "logprobs",   "tools",       "response_format",
                           "suffix",         "best_of",    "echo",        "kv_policy",
                           "kv_retention",   "kv_window",  "kv_strict",   "kv_options",
                           "kv_recovery",    "timeout",    "kv_mode",     "kv_scope",
                           "kv_head_check"}) {
    const ParsedBody body = Parsed(kText, TextBody(std::string("\"") + name + "\": null"));
    EXPECT_EQ(body.num_unknown_fields, 0) << name;
    EXPECT_FALSE(body.request.stream || body.request.temperature.has_value()) << name;
  }
  EXPECT_EQ(Refused(kText, R"({"prompt": null})").param, "prompt");
  EXPECT_EQ(Refused(kChat, R"({"messages": null})").param, "messages");
}

struct TypeCase {
  Endpoint endpoint;
  const char* fields;
  const char* code;
  const char* param;
};

class TypeTest : public testing::TestWithParam<TypeCase> {};

TEST_P(TypeTest, AWrongTypeIsRefusedWithItsPath) {
  const TypeCase& of = GetParam();
  const std::string body = of.endpoint == kChat ? ChatBody(of.fields) : TextBody(of.fields);
  const ApiError error = Refused(of.endpoint, body);
  EXPECT_EQ(error.http_status, 400) << body;
  EXPECT_EQ(error.type, "invalid_request_error") << body;
  EXPECT_EQ(error.code, of.code) << body;
  EXPECT_EQ(error.param, of.param) << body;
}

INSTANTIATE_TEST_SUITE_P(
    Types, TypeTest,
    testing::Values(
        TypeCase{kText, R"("stream": "true")", "invalid_type", "stream"},
        TypeCase{kText, R"("temperature": "hot")", "invalid_type", "temperature"},
        TypeCase{kText, R"("max_tokens": 1.5)", "invalid_type", "max_tokens"},
        TypeCase{kText, R"("max_tokens": "8")", "invalid_type", "max_tokens"},
        TypeCase{kText, R"("max_tokens": 18446744073709551615)", "invalid_type", "max_tokens"},
        TypeCase{kText, R"("seed": 1e300)", "invalid_type", "seed"},
        TypeCase{kText, R"("n": true)", "invalid_type", "n"},
        TypeCase{kText, R"("model": 5)", "invalid_type", "model"},
        TypeCase{kText, R"("user": {})", "invalid_type", "user"},
        TypeCase{kText, R"("stop": 5)", "invalid_type", "stop"},
        TypeCase{kText, R"("stop": ["a", 5])", "invalid_type", "stop"},
        TypeCase{kText, R"("stop_token_ids": "5")", "invalid_type", "stop_token_ids"},
        TypeCase{kText, R"("stop_token_ids": [1.5])", "invalid_type", "stop_token_ids"},
        TypeCase{kText, R"("logit_bias": [1])", "invalid_type", "logit_bias"},
        TypeCase{kText, R"("logit_bias": {"x": 1})", "invalid_type", "logit_bias"},
        TypeCase{kText, R"("logit_bias": {"1x": 1})", "invalid_type", "logit_bias"},
        TypeCase{kText, R"("logit_bias": {"": 1})", "invalid_type", "logit_bias"},
        TypeCase{kText, R"("logit_bias": {" 1": 1})", "invalid_type", "logit_bias"},
        TypeCase{kText, R"("logit_bias": {"99999999999999999999": 1})", "invalid_type",
                 "logit_bias"},
        TypeCase{kText, R"("logit_bias": {"1": "x"})", "invalid_type", "logit_bias"},
        TypeCase{kText, R"("logprobs": true)", "invalid_type", "logprobs"},
        TypeCase{kChat, R"("logprobs": 2)", "invalid_type", "logprobs"},
        TypeCase{kText, R"("stream_options": {})", "invalid_value", "stream_options"},
        TypeCase{kText, R"("stream": true, "stream_options": true)", "invalid_type",
                 "stream_options"},
        TypeCase{kText, R"("stream": true, "stream_options": {"include_usage": 1})", "invalid_type",
                 "stream_options.include_usage"},
        TypeCase{kChat, R"("top_logprobs": 2)", "invalid_value", "top_logprobs"},
        TypeCase{kText, R"("kv_retention": "0.2")", "invalid_budget", "kv_retention"},
        TypeCase{kText, R"("kv_retention": 0.1234567)", "invalid_budget", "kv_retention"},
        TypeCase{kText, R"("tsp_ratio": [])", "invalid_budget", "tsp_ratio"},
        TypeCase{kText, R"("kv_window": 8.5)", "invalid_budget", "kv_window"},
        TypeCase{kText, R"("kv_policy": 5)", "invalid_budget", "kv_policy"},
        TypeCase{kText, R"("kv_strict": "true")", "invalid_type", "kv_strict"},
        TypeCase{kText, R"("kv_options": [])", "invalid_type", "kv_options"},
        TypeCase{kText, R"("kv_options": {"alpha": [1]})", "invalid_budget", "kv_options"}));

INSTANTIATE_TEST_SUITE_P(
    Unsupported, TypeTest,
    testing::Values(
        TypeCase{kChat, R"("tools": [{"type": "function"}])", "unsupported_parameter", "tools"},
        TypeCase{kChat, R"("tools": 5)", "unsupported_parameter", "tools"},
        TypeCase{kChat, R"("functions": [{}])", "unsupported_parameter", "functions"},
        TypeCase{kChat, R"("modalities": ["audio"])", "unsupported_parameter", "modalities"},
        TypeCase{kChat, R"("response_format": {"type": "json_object"})", "unsupported_parameter",
                 "response_format"},
        TypeCase{kChat, R"("response_format": {"type": 5})", "unsupported_parameter",
                 "response_format"},
        TypeCase{kChat, R"("response_format": {})", "unsupported_parameter", "response_format"},
        TypeCase{kChat, R"("response_format": "text")", "unsupported_parameter", "response_format"},
        TypeCase{kText, R"("best_of": 2)", "unsupported_parameter", "best_of"},
        TypeCase{kChat, R"("add_generation_prompt": false)", "unsupported_parameter",
                 "add_generation_prompt"},
        TypeCase{kChat, R"("continue_final_message": true)", "unsupported_parameter",
                 "continue_final_message"},
        TypeCase{kText, R"("echo": true)", "unsupported_parameter", "echo"},
        TypeCase{kText, R"("suffix": "x")", "unsupported_parameter", "suffix"},
        TypeCase{kText, R"("prompt_logprobs": 1)", "unsupported_parameter", "prompt_logprobs"},
        TypeCase{kChat, R"("chat_template": "{{ 1 }}")", "unsupported_parameter", "chat_template"},
        TypeCase{kText, R"("guided_json": {})", "unsupported_parameter", "guided_json"}));

TEST(ParseBodyTest, NeutralValuesOfUnsupportedFieldsPass) {
  Parsed(kChat, ChatBody(R"("tools": [], "functions": [], "modalities": ["text"],
                            "response_format": {"type": "text"}, "best_of": 1)"));
  Parsed(kText, TextBody(R"("echo": false, "suffix": "", "best_of": 1)"));
}

TEST(ParseBodyTest, UnknownFieldsAreIgnoredAndCounted) {
  EXPECT_EQ(Parsed(kText, TextBody("")).num_unknown_fields, 0);
  EXPECT_EQ(Parsed(kText, TextBody(R"("store": true, "metadata": {"a": [1]}, "temperature": 1)"))
                .num_unknown_fields,
            2);
  EXPECT_EQ(Parsed(kChat, ChatBody(R"("parallel_tool_calls": true)")).num_unknown_fields, 1);
}

TEST(ParseBodyTest, IntegersMayBeWrittenAsFloats) {
  EXPECT_EQ(Parsed(kText, TextBody(R"("max_tokens": 16.0)")).request.max_tokens, 16);
}

TEST(ParseBodyTest, MaxCompletionTokensGoesBeforeMaxTokens) {
  EXPECT_EQ(
      Parsed(kChat, ChatBody(R"("max_tokens": 5, "max_completion_tokens": 9)")).request.max_tokens,
      9);
}

TEST(ParseBodyTest, ChatLogprobsAreTwoFields) {
  EXPECT_FALSE(Parsed(kChat, ChatBody("")).request.num_logprobs.has_value());
  EXPECT_EQ(Parsed(kChat, ChatBody(R"("logprobs": true)")).request.num_logprobs, 0);
  EXPECT_EQ(Parsed(kChat, ChatBody(R"("logprobs": true, "top_logprobs": 3)")).request.num_logprobs,
            3);
  EXPECT_FALSE(Parsed(kChat, ChatBody(R"("logprobs": false, "top_logprobs": 0)"))
                   .request.num_logprobs.has_value());
}

struct JsonCase {
  std::string name;
  std::string body;
};

class InvalidJsonTest : public testing::TestWithParam<JsonCase> {};

TEST_P(InvalidJsonTest, IsRefusedBeforeAnythingElse) {
  for (Endpoint endpoint : {kChat, kText}) {
    const ApiError error = Refused(endpoint, GetParam().body);
    EXPECT_EQ(error.http_status, 400);
    EXPECT_EQ(error.code, "invalid_json");
    EXPECT_EQ(error.param, "");
    EXPECT_FALSE(error.message.empty());
  }
}

std::string Nested(int depth) {
  return R"({"prompt": "p", "messages": [{"role": "user", "content": "q"}], "x": )" +
         std::string(static_cast<size_t>(depth - 1), '[') +
         std::string(static_cast<size_t>(depth - 1), ']') + "}";
}

INSTANTIATE_TEST_SUITE_P(
    Table, InvalidJsonTest,
    testing::Values(JsonCase{"Empty", ""}, JsonCase{"Cut", R"({"prompt": "a)"},
                    JsonCase{"Trailing", R"({"prompt": "a"} x)"},
                    JsonCase{"TwoDocuments", R"({"prompt": "a"}{"prompt": "b"})"},
                    JsonCase{"BadUtf8", "{\"prompt\": \"\xff\xfe\"}"},
                    JsonCase{"OverlongUtf8", "{\"prompt\": \"\xc0\xaf\"}"},
                    JsonCase{"Surrogate", "{\"prompt\": \"\xed\xa0\x80\"}"},
                    JsonCase{"LoneHighSurrogate", R"({"prompt": "\ud800"})"},
                    JsonCase{"LoneLowSurrogate", R"({"prompt": "\udc00"})"},
                    JsonCase{"HugeNumber", R"({"prompt": "a", "temperature": 1e999})"},
                    JsonCase{"NotANumber", R"({"prompt": "a", "temperature": NaN})"},
                    JsonCase{"SingleQuotes", "{'prompt': 'a'}"},
                    JsonCase{"DuplicateKey", R"({"prompt": "a", "prompt": "b"})"},
                    JsonCase{"NestedDuplicateKey", R"({"prompt": "a", "x": {"y": 1, "y": 2}})"},
                    JsonCase{"EscapedDuplicateKey", R"({"n": 1, "\u006e": 2})"},
                    JsonCase{"Depth65", Nested(65)}, JsonCase{"Depth500000", Nested(500'000)},
                    JsonCase{"OnlyOpen", std::string(100'000, '[')},
                    JsonCase{"OnlyClosed", std::string(100'000, ']')}),
    [](const auto& of) { return of.param.name; });

TEST(ParseBodyTest, Depth64IsAllowedAndBracketsInStringsDoNotCount) {
  Parsed(kText, Nested(64));
  Parsed(kText, R"({"prompt": ")" + std::string(1000, '[') + R"(\"[[\\"})");
  // The same name in two objects is no duplicate.
  Parsed(kText, R"({"prompt": "a", "x": {"a": 1}, "y": {"a": 1}})");
}

TEST(ParseBodyTest, TheByteOffsetOfAJsonFaultIsNamed) {
  EXPECT_NE(Refused(kText, R"({"prompt": @})").message.find("12"), std::string::npos);
}

TEST(ParseBodyTest, ABodyThatIsNoObjectIsRefused) {
  for (const char* body : {"[]", "\"text\"", "5", "null", "true"}) {
    EXPECT_EQ(Refused(kText, body).code, "invalid_type") << body;
  }
}

TEST(ParseBodyTest, NulAndEscapesInTextPass) {
  const GenerationRequest request = Parsed(kText, R"({"prompt": "a\u0000b\ud83d\ude00"})").request;
  EXPECT_EQ(std::get<TextPrompt>(request.prompts[0]).text, std::string("a\0b\xF0\x9F\x98\x80", 7));
}

TEST(ParseBodyTest, ErrorsNeverRepeatTheClientsText) {
  for (const std::string& body :
       {std::string(R"({"canary-77": "canary-77", "prompt": 5})"),
        std::string(R"({"prompt": "canary-77)"), std::string(R"({"canary-77": 1, "canary-77": 2})"),
        TextBody(R"("stop": {"canary-77": 1})"), TextBody(R"("kv_pool": ["canary-77"])"),
        TextBody(R"("kv_options": {"canary-77": [1]})"),
        TextBody(R"("logit_bias": {"canary-77": 1})"),
        TextBody(R"("response_format": {"type": "canary-77"})")}) {
    EXPECT_EQ(Refused(kText, body).message.find("canary"), std::string::npos) << body;
  }
}

TEST(ParsePromptTest, TakesTextIdsAndListsOfThem) {
  const auto prompts = [](const std::string& prompt) {
    return Parsed(kText, R"({"prompt": )" + prompt + "}").request.prompts;
  };
  EXPECT_EQ(std::get<TextPrompt>(prompts(R"("")")[0]).text, "");
  EXPECT_EQ(std::get<TokenPrompt>(prompts("[1, 2, 3]")[0]).ids, (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(std::get<TokenPrompt>(prompts("[-1, 9223372036854775807]")[0]).ids,
            (std::vector<int64_t>{-1, INT64_MAX}));
  const auto texts = prompts(R"(["a", "b"])");
  ASSERT_EQ(texts.size(), 2u);
  EXPECT_EQ(std::get<TextPrompt>(texts[1]).text, "b");
  const auto lists = prompts("[[1], [2, 3]]");
  ASSERT_EQ(lists.size(), 2u);
  EXPECT_EQ(std::get<TokenPrompt>(lists[1]).ids, (std::vector<int64_t>{2, 3}));
}

TEST(ParsePromptTest, RefusesEverythingElse) {
  std::string many = "[";
  for (int i = 0; i < 129; ++i) {
    many += i > 0 ? ",\"a\"" : "\"a\"";
  }
  for (const std::string& prompt :
       {std::string("[]"), std::string("5"), std::string("{}"), std::string("true"),
        std::string("[1.5]"), std::string("[1, \"a\"]"), std::string("[\"a\", 1]"),
        std::string("[[1], 2]"), std::string("[[1.5]]"), std::string("[18446744073709551615]"),
        std::string("[null]")}) {
    const ApiError error = Refused(kText, R"({"prompt": )" + prompt + "}");
    EXPECT_EQ(error.code, "invalid_type") << prompt.substr(0, 40);
    EXPECT_EQ(error.param, "prompt");
  }
  EXPECT_EQ(Refused(kText, "{}").param, "prompt");
  const ApiError too_many = Refused(kText, R"({"prompt": )" + many + "]}");
  EXPECT_EQ(too_many.code, "invalid_value");
  EXPECT_EQ(too_many.message, "prompt: got 129 prompts, wanted at most 128");
}

TEST(ParseMessagesTest, JoinsTextPartsAndReadsDeveloperAsSystem) {
  const GenerationRequest request =
      Parsed(kChat, R"({"messages": [{"role": "developer", "content": "d"},
          {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
          {"role": "assistant", "content": null}, {"role": "tool"}]})")
          .request;
  const models::ListObject* messages = std::get<ChatPrompt>(request.prompts[0]).messages.list();
  ASSERT_NE(messages, nullptr);
  ASSERT_EQ(messages->items.size(), 4u);
  EXPECT_EQ(TextOf(messages->items[0], "role"), "system");
  EXPECT_EQ(TextOf(messages->items[1], "content"), "a\nb");
  EXPECT_EQ(TextOf(messages->items[2], "content"), "");
  EXPECT_EQ(TextOf(messages->items[3], "content"), "");
}

TEST(ParseMessagesTest, EveryTextIsMarkedAsMessageText) {
  const GenerationRequest request =
      Parsed(kChat, R"({"messages": [{"role": "user", "content": "abc"}]})").request;
  const models::ListObject* messages = std::get<ChatPrompt>(request.prompts[0]).messages.list();
  for (const auto& [name, value] : messages->items[0].dict()->entries) {
    ASSERT_NE(value.text(), nullptr);
    const auto size = static_cast<int64_t>(value.text()->text.size());
    ASSERT_EQ(value.text()->message_ranges.size(), 1u);
    EXPECT_EQ(value.text()->message_ranges[0].begin, 0);
    EXPECT_EQ(value.text()->message_ranges[0].end, size);
  }
}

TEST(ParseMessagesTest, FaultsNameTheMessage) {
  struct Case {
    const char* messages;
    const char* param;
  };
  for (const Case& of : {
           Case{R"([5])", "messages[0]"},
           Case{R"([{"role": "user", "content": "a"}, {}])", "messages[1].role"},
           Case{R"([{"role": 5}])", "messages[0].role"},
           Case{R"([{"role": "user"}])", "messages[0].content"},
           Case{R"([{"role": "system", "content": null}])", "messages[0].content"},
           Case{R"([{"role": "user", "content": 5}])", "messages[0].content"},
           Case{R"([{"role": "user", "content": {}}])", "messages[0].content"},
           Case{R"([{"role": "user", "content": [5]}])", "messages[0].content"},
           Case{R"([{"role": "user", "content": [{"type": 5}]}])", "messages[0].content"},
           Case{R"([{"role": "user", "content": [{"type": "image_url"}]}])", "messages[0].content"},
           Case{R"([{"role": "user", "content": [{"type": "text", "text": 5}]}])",
                "messages[0].content"},
           Case{R"({})", "messages"},
           Case{R"([])", "messages"},
           Case{R"("a")", "messages"},
       }) {
    const ApiError error = Refused(kChat, R"({"messages": )" + std::string(of.messages) + "}");
    EXPECT_EQ(error.code, "invalid_type") << of.messages;
    EXPECT_EQ(error.param, of.param) << of.messages;
  }
  EXPECT_EQ(Refused(kChat, "{}").param, "messages");
}

TEST(ParseMessagesTest, TakesUpTo4096Messages) {
  const auto body = [](int count) {
    std::string text = R"({"messages": [)";
    for (int i = 0; i < count; ++i) {
      text += i > 0 ? R"(,{"role":"user","content":"a"})" : R"({"role":"user","content":"a"})";
    }
    return text + "]}";
  };
  Parsed(kChat, body(4096));
  EXPECT_EQ(Refused(kChat, body(4097)).param, "messages");
}

using HeaderList = std::vector<std::pair<std::string, std::string>>;

BudgetFields ParsedHeaders(const HeaderList& headers) {
  auto result = ParseBudgetHeaders(headers);
  if (const auto* error = std::get_if<ApiError>(&result)) {
    ADD_FAILURE() << error->message;
    return {};
  }
  return std::get<BudgetFields>(result);
}

TEST(ParseBudgetHeadersTest, ReadsEveryBudgetHeaderAndNoOther) {
  const BudgetFields fields = ParsedHeaders({{"host", "a"},
                                             {"x-kv-policy", "fastkv"},
                                             {"x-kv-retention", "0.29"},
                                             {"x-tsp-ratio", "1"},
                                             {"x-kv-retention-tokens", "10"},
                                             {"x-tsp-tokens", "11"},
                                             {"x-kv-window", "12"},
                                             {"x-kv-window-raw", "13"},
                                             {"x-kv-pool", "avg"},
                                             {"x-kv-pool-width", "5"},
                                             {"x-kv-sink-tokens", "0"},
                                             {"x-kv-min-prompt", "0"},
                                             {"x-tsp-min-prompt", "1"},
                                             {"x-kv-decode", "grow"},
                                             {"x-kv-strict", "true"},
                                             {"x-kv-unknown", "5"},
                                             {"x-other", "5"}});
  EXPECT_EQ(fields.kv_policy, "fastkv");
  EXPECT_EQ(fields.kv_retention_ppm, 290'000);
  EXPECT_EQ(fields.tsp_ratio_ppm, 1'000'000);
  EXPECT_EQ(fields.kv_retention_tokens, 10);
  EXPECT_EQ(fields.tsp_tokens, 11);
  EXPECT_EQ(fields.kv_window, 12);
  EXPECT_EQ(fields.kv_window_raw, 13);
  EXPECT_EQ(fields.kv_pool, "avg");
  EXPECT_EQ(fields.kv_pool_width, 5);
  EXPECT_EQ(fields.kv_sink_tokens, 0);
  EXPECT_EQ(fields.kv_min_prompt, 0);
  EXPECT_EQ(fields.tsp_min_prompt, 1);
  EXPECT_EQ(fields.kv_decode, "grow");
  EXPECT_EQ(fields.kv_strict, true);
  EXPECT_EQ(ParsedHeaders({{"x-kv-strict", "false"}}).kv_strict, false);
}

TEST(ParseBudgetHeadersTest, MalformedValuesAreRefusedWithTheHeadersName) {
  for (const auto& [name, value] :
       HeaderList{{"x-kv-retention", ""},     {"x-kv-retention", "abc"},
                  {"x-kv-retention", "1e-1"}, {"x-kv-retention", "0.2, 0.3"},
                  {"x-tsp-ratio", "-0.2"},    {"x-kv-window", ""},
                  {"x-kv-window", "8.0"},     {"x-kv-window", "+8"},
                  {"x-kv-window", "8 8"},     {"x-kv-window", "18446744073709551616"},
                  {"x-kv-sink-tokens", "-5"}, {"x-kv-min-prompt", "1e9"},
                  {"x-kv-policy", ""},        {"x-kv-pool", ""},
                  {"x-kv-strict", "yes"},     {"x-kv-strict", "1"},
                  {"x-kv-head-check", "on"},  {"x-kv-mode", ""},
                  {"x-kv-scope", ""},         {"x-kv-options", "{}"}}) {
    auto result = ParseBudgetHeaders({{name, value}});
    const auto* error = std::get_if<ApiError>(&result);
    ASSERT_NE(error, nullptr) << name << ": " << value;
    EXPECT_EQ(error->code, "invalid_budget") << name << ": " << value;
    EXPECT_EQ(error->param, name);
  }
}

TEST(ParseBudgetHeadersTest, AHeaderGivenTwiceIsAFaultEvenWithEqualValues) {
  auto result = ParseBudgetHeaders({{"x-kv-retention", "0.2"}, {"x-kv-retention", "0.2"}});
  const auto* error = std::get_if<ApiError>(&result);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code, "invalid_budget");
  EXPECT_EQ(error->param, "x-kv-retention");
}

TEST(ParseBudgetHeadersTest, SettingsOfTheHeadMapHaveHeaders) {
  const BudgetFields fields =
      ParsedHeaders({{"x-kv-mode", "both"}, {"x-kv-scope", "layer"}, {"x-kv-head-check", "true"}});
  EXPECT_EQ(fields.kv_mode, "both");
  EXPECT_EQ(fields.kv_scope, "layer");
  EXPECT_EQ(fields.kv_head_check, true);
}

}  // namespace
}  // namespace headroom::server
