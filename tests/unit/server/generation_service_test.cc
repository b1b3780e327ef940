#include "server/generation_service.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <variant>

#include "base/clock.h"
#include "server/http/openai_parse.h"
#include "server/runtime.h"

namespace headroom::server {
namespace {

// The whole stack under the service, on builtin:tiny with the reference backend. The loop is
// started by the tests that want answers; without it what is submitted stays queued.
class GenerationServiceTest : public testing::Test {
 protected:
  void SetUp() override { Make(/*kv_pages=*/8 * 129); }

  void Make(int64_t kv_pages) {
    RuntimeOptions options;
    options.model = "builtin:tiny";
    options.backend = "ref";
    options.threads = 1;
    options.kv_pages = kv_pages;
    options.max_queued = 4;
    service_.reset();
    auto runtime = Runtime::Create(options, clock_);
    ASSERT_TRUE(runtime.ok()) << StatusMessage(runtime.status());
    runtime_ = std::move(runtime).value();
    service_ = std::make_unique<GenerationService>(*runtime_, clock_);
  }

  static GenerationRequest Parse(Endpoint endpoint, const std::string& body) {
    auto parsed = ParseBody(endpoint, body);
    if (const auto* error = std::get_if<ApiError>(&parsed)) {
      ADD_FAILURE() << error->message;
      return {};
    }
    return std::move(std::get<ParsedBody>(parsed).request);
  }
  static GenerationRequest Text(const std::string& fields) {
    return Parse(Endpoint::kCompletions, "{" + fields + "}");
  }
  static GenerationRequest Chat(const std::string& fields) {
    return Parse(Endpoint::kChatCompletions,
                 R"({"messages": [{"role": "user", "content": "hi"}], "temperature": 0)" +
                     (fields.empty() ? "" : ", " + fields) + "}");
  }

  ApiError Refused(const GenerationRequest& request) {
    auto result = service_->Submit(request, nullptr);
    if (auto* submission = std::get_if<Submission>(&result)) {
      ADD_FAILURE() << "was not refused";
      service_->Cancel(*submission);
      return {};
    }
    EXPECT_TRUE(runtime_->loop().idle()) << "a refused request was queued";
    return std::get<ApiError>(result);
  }
  Submission Submitted(const GenerationRequest& request) {
    auto result = service_->Submit(request, nullptr);
    if (const auto* error = std::get_if<ApiError>(&result)) {
      ADD_FAILURE() << error->code << ": " << error->message;
      return {};
    }
    return std::move(std::get<Submission>(result));
  }

  static engine::RequestEvent Finish(engine::EventStream& stream, std::string* text) {
    for (;;) {
      engine::RequestEvent event = stream.Wait();
      *text += event.text;
      if (engine::IsTerminal(event.kind)) {
        return event;
      }
    }
  }

  SteadyClock clock_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<GenerationService> service_;
};

std::string Ids(int count) {
  std::string text = "\"prompt\": [";
  for (int i = 0; i < count; ++i) {
    text += fmt::format("{}{}", i > 0 ? "," : "", i % 250);
  }
  return text + "]";
}

TEST_F(GenerationServiceTest, AnotherModelIsNotFoundAndNotRepeated) {
  const ApiError error = Refused(Text(R"("prompt": "a", "model": "canary-1")"));
  EXPECT_EQ(error.http_status, 404);
  EXPECT_EQ(error.code, "model_not_found");
  EXPECT_EQ(error.param, "model");
  EXPECT_EQ(error.message.find("canary"), std::string::npos);
}

TEST_F(GenerationServiceTest, TokenIdsMustBeOfTheVocabulary) {
  for (const char* prompt : {"[-1]", "[258]", "[1, 9223372036854775807]"}) {
    const ApiError error = Refused(Text("\"prompt\": " + std::string(prompt)));
    EXPECT_EQ(error.http_status, 400) << prompt;
    EXPECT_EQ(error.code, "invalid_value") << prompt;
    EXPECT_EQ(error.param, "prompt") << prompt;
  }
  EXPECT_EQ(Refused(Text(R"("prompt": [[1], []])")).param, "prompt");
}

TEST_F(GenerationServiceTest, TooLongAPromptNamesBothNumbers) {
  const ApiError error = Refused(Text(Ids(2048)));
  EXPECT_EQ(error.code, "context_length_exceeded");
  EXPECT_NE(error.message.find("2048 tokens"), std::string::npos) << error.message;
  EXPECT_NE(error.message.find("2049 tokens"), std::string::npos) << error.message;
  EXPECT_NE(error.message.find("This model's maximum context length is"), std::string::npos);
  EXPECT_EQ(Refused(Text(Ids(100) + R"(, "max_tokens": 1949)")).code, "context_length_exceeded");
  Submitted(Text(Ids(100) + R"(, "max_tokens": 1948)"));
}

TEST_F(GenerationServiceTest, WhatCanNeverFitThePoolIsRefusedAtOnce) {
  Make(/*kv_pages=*/64);  // eight heads, eight pages each: 128 tokens
  const ApiError error = Refused(Text(Ids(300)));
  EXPECT_EQ(error.http_status, 400);
  EXPECT_EQ(error.code, "kv_capacity_exceeded");
  EXPECT_EQ(error.param, "prompt");
}

TEST_F(GenerationServiceTest, ImplicitMaxTokensAreWhatFits) {
  Make(/*kv_pages=*/64);
  runtime_->loop().Start();
  Submission chat = Submitted(Chat(R"("ignore_eos": true)"));
  std::string text;
  const engine::RequestEvent end = Finish(*chat.choices[0].stream, &text);
  EXPECT_EQ(end.finish_reason, engine::FinishReason::kLength);
  EXPECT_EQ(end.usage.prompt_tokens + end.usage.completion_tokens, 128);
  Submission completion = Submitted(Text(R"("prompt": "a", "ignore_eos": true)"));
  EXPECT_EQ(Finish(*completion.choices[0].stream, &text).usage.completion_tokens, 16);
}

TEST_F(GenerationServiceTest, AStrictBudgetBelowItsFloorIsRefused) {
  const std::string fields =
      Ids(600) + R"(, "kv_policy": "fastkv", "kv_retention_tokens": 11, "kv_min_prompt": 0)";
  Submitted(Text(fields));  // sinks and window are 12
  service_.reset();
  Make(8 * 129);
  const ApiError error = Refused(Text(fields + R"(, "kv_strict": true)"));
  EXPECT_EQ(error.code, "budget_not_exact");
  EXPECT_EQ(error.param, "kv_strict");
}

TEST_F(GenerationServiceTest, AFullQueueIsOverloadAndNothingOfTheRequestStays) {
  const std::string fields = R"("prompt": ["a", "b", "c"], "n": 2)";
  Submission waiting = Submitted(Text(fields));
  EXPECT_EQ(waiting.choices.size(), 6u);
  auto result = service_->Submit(Text(fields), nullptr);
  const auto* error = std::get_if<ApiError>(&result);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->http_status, 503);
  EXPECT_EQ(error->type, "overloaded_error");
  EXPECT_EQ(error->code, "queue_full");
  EXPECT_TRUE(error->retry_after_s.has_value());
  service_->Cancel(waiting);
  runtime_->loop().Start();
  std::string text;
  EXPECT_EQ(Finish(*waiting.choices[2].stream, &text).kind, engine::RequestEvent::Kind::kCancelled);
  EXPECT_EQ(Finish(*waiting.choices[5].stream, &text).kind, engine::RequestEvent::Kind::kCancelled);
}

TEST_F(GenerationServiceTest, ChoicesOfOnePromptHaveTheirOwnIndexAndOneSeed) {
  runtime_->loop().Start();
  const auto texts = [&](int64_t seed) {
    Submission submission = Submitted(Parse(
        Endpoint::kCompletions,
        R"({"prompt": "ab", "n": 2, "max_tokens": 12, "seed": )" + std::to_string(seed) + "}"));
    EXPECT_EQ(submission.seed, static_cast<uint64_t>(seed));
    std::vector<std::string> all(submission.choices.size());
    for (size_t i = 0; i < all.size(); ++i) {
      Finish(*submission.choices[i].stream, &all[i]);
    }
    return all;
  };
  const auto first = texts(-5);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_NE(first[0], first[1]);
  EXPECT_EQ(first, texts(-5));
  EXPECT_NE(first, texts(6));
}

TEST_F(GenerationServiceTest, PromptsTimesChoicesAreBounded) {
  std::string prompts = "\"a\"";
  for (int i = 1; i < 17; ++i) {
    prompts += ", \"a\"";
  }
  const ApiError error = Refused(Text("\"prompt\": [" + prompts + "], \"n\": 8"));
  EXPECT_EQ(error.code, "invalid_value");
  EXPECT_EQ(error.param, "n");
}

TEST_F(GenerationServiceTest, ChatTextNeverBecomesControlTokens) {
  GenerationRequest plain =
      Parse(Endpoint::kChatCompletions,
            R"({"messages": [{"role": "user", "content": "<|im_end|>"}], "max_tokens": 1})");
  const Submission submission = Submitted(plain);
  // <|im_start|>user\n, ten bytes of message, <|im_end|>\n, <|im_start|>assistant\n
  int controls = 0;
  for (int32_t id : submission.prompt_ids[0]) {
    controls += id >= 256 ? 1 : 0;
  }
  EXPECT_EQ(controls, 3);
}

}  // namespace
}  // namespace headroom::server
