#include "server/http/openai_format.h"

#include <gtest/gtest.h>

#include <string>

namespace headroom::server {
namespace {

// What was asked differs from what the engine did in every field.
ResolvedBudget AskedBudget() {
  ResolvedBudget budget;
  budget.spec.policy = "fastkv";
  budget.spec.retention_ppm = 200'000;
  budget.spec.tsp_ppm = 300'000;
  budget.asked = {{"kv_policy", "\"fastkv\"", "header"},
                  {"kv_retention", "0.2", "body"},
                  {"kv_strict", "false", "body"}};
  budget.reasons = {"no_head_map", "short_prompt"};
  return budget;
}

engine::KvReceipt EngineReceipt() {
  engine::KvReceipt receipt;
  receipt.policy = "fastkv";
  receipt.retention_ppm = 1'000'000;
  receipt.tsp_ppm = 123'456;
  receipt.reasons = {"short_prompt", "floor"};
  receipt.prompt_tokens = 100;
  receipt.propagated_tokens = 90;
  receipt.entries = 800;
  receipt.entries_full = 1000;
  receipt.bytes = 51'200;
  receipt.bytes_full = 64'000;
  receipt.pages = 60;
  receipt.compress_ms = 1.5;
  return receipt;
}

TEST(ReceiptJsonTest, AppliedIsWhatTheEngineAppliedNotWhatWasAsked) {
  const Json json = ReceiptJson(AskedBudget(), EngineReceipt());
  EXPECT_EQ(json["asked"]["kv_retention"], 0.2);
  EXPECT_EQ(json["applied"]["kv_retention"], 1);
  EXPECT_EQ(json["applied"]["tsp_ratio"], 0.123456);
  EXPECT_FALSE(json["asked"].contains("tsp_ratio"));
}

TEST(ReceiptJsonTest, AskedFieldsCarryTheirSources) {
  const Json json = ReceiptJson(AskedBudget(), EngineReceipt());
  EXPECT_EQ(json["asked"],
            Json::parse(R"({"kv_policy": "fastkv", "kv_retention": 0.2, "kv_strict": false})"));
  EXPECT_EQ(json["sources"],
            Json::parse(R"({"kv_policy": "header", "kv_retention": "body", "kv_strict": "body"})"));
}

TEST(ReceiptJsonTest, CountsComeFromTheEngine) {
  const Json json = ReceiptJson(AskedBudget(), EngineReceipt());
  EXPECT_EQ(json["policy"], "fastkv");
  EXPECT_TRUE(json["head_map"].is_null());
  EXPECT_EQ(json["prompt_tokens"], 100);
  EXPECT_EQ(json["propagated_tokens"], 90);
  EXPECT_EQ(json["entries"], 800);
  EXPECT_EQ(json["entries_full"], 1000);
  EXPECT_EQ(json["bytes"], 51'200);
  EXPECT_EQ(json["bytes_full"], 64'000);
  EXPECT_EQ(json["pages"], 60);
  EXPECT_EQ(json["compress_ms"], 1.5);
}

TEST(ReceiptJsonTest, ReasonsOfResolverAndEngineAreOneList) {
  EXPECT_EQ(ReceiptJson(AskedBudget(), EngineReceipt())["reasons"],
            Json::parse(R"(["no_head_map", "short_prompt", "floor"])"));
}

TEST(ReceiptJsonTest, SettingsAreApplied) {
  ResolvedBudget budget = AskedBudget();
  budget.spec.window = 16;
  budget.spec.window_raw = true;
  budget.spec.pool = kernels::PoolKind::kAvg;
  budget.spec.pool_width = 5;
  budget.spec.sink_tokens = 0;
  budget.spec.decode = engine::KvDecode::kTyped;
  const Json applied = ReceiptJson(budget, EngineReceipt())["applied"];
  EXPECT_EQ(applied["kv_window_raw"], 16);
  EXPECT_FALSE(applied.contains("kv_window"));
  EXPECT_EQ(applied["kv_pool"], "avg");
  EXPECT_EQ(applied["kv_pool_width"], 5);
  EXPECT_EQ(applied["kv_sink_tokens"], 0);
  EXPECT_EQ(applied["kv_decode"], "typed");
}

TEST(ReceiptJsonTest, AbsoluteFormsAreAppliedOnlyWhereThePromptIsLongEnough) {
  ResolvedBudget budget = AskedBudget();
  budget.spec.retention_tokens = 10;
  budget.spec.tsp_tokens = 20;
  engine::KvReceipt receipt = EngineReceipt();  // 100 tokens: short for both
  EXPECT_FALSE(ReceiptJson(budget, receipt)["applied"].contains("kv_retention_tokens"));
  EXPECT_FALSE(ReceiptJson(budget, receipt)["applied"].contains("tsp_tokens"));
  receipt.prompt_tokens = 2048;
  EXPECT_EQ(ReceiptJson(budget, receipt)["applied"]["kv_retention_tokens"], 10);
  EXPECT_EQ(ReceiptJson(budget, receipt)["applied"]["tsp_tokens"], 20);
}

TEST(ReceiptJsonTest, TheSmallestRatioIsADecimal) {
  engine::KvReceipt receipt = EngineReceipt();
  receipt.retention_ppm = 1;
  EXPECT_EQ(ReceiptJson(AskedBudget(), receipt)["applied"]["kv_retention"], 1e-6);
}

TEST(ErrorBodyTest, IsNestedAndNamesItsParts) {
  const Json with = Json::parse(ErrorBody(BadRequest("invalid_value", "n: got 0", "n")));
  EXPECT_EQ(with, Json::parse(R"({"error": {"message": "n: got 0", "type": "invalid_request_error",
                                            "param": "n", "code": "invalid_value"}})"));
  const Json without = Json::parse(ErrorBody(BadRequest("invalid_json", "byte 1", "")));
  EXPECT_TRUE(without["error"]["param"].is_null());
}

TEST(ErrorBodyTest, StaysJsonWhateverTheMessageHolds) {
  const Json body = Json::parse(ErrorBody(BadRequest("x", "bad \xff \" \n", "")));
  EXPECT_EQ(body["error"]["message"], "bad \xEF\xBF\xBD \" \n");
}

TEST(FromStatusTest, MapsEveryKindOfFault) {
  struct Case {
    Status status;
    int http;
    const char* type;
    const char* code;
    bool retry_after;
  };
  for (const Case& of : {
           Case{OutOfRange("m"), 400, "invalid_request_error", "context_length_exceeded", false},
           Case{ResourceExhausted("m"), 400, "invalid_request_error", "kv_capacity_exceeded",
                false},
           Case{InvalidArgument("m"), 400, "invalid_request_error", "invalid_value", false},
           Case{Unavailable("m"), 503, "overloaded_error", "queue_full", true},
           Case{MakeStatus(StatusCode::kAborted, "m"), 503, "overloaded_error",
                "server_shutting_down", true},
           Case{MakeStatus(StatusCode::kDeadlineExceeded, "m"), 504, "timeout_error",
                "deadline_exceeded", false},
           Case{Internal("m"), 500, "server_error", "internal_error", false},
       }) {
    const ApiError error = FromStatus(of.status);
    EXPECT_EQ(error.http_status, of.http) << of.code;
    EXPECT_EQ(error.type, of.type);
    EXPECT_EQ(error.code, of.code);
    EXPECT_EQ(error.message, "m");
    EXPECT_EQ(error.retry_after_s.has_value(), of.retry_after) << of.code;
  }
}

}  // namespace
}  // namespace headroom::server
