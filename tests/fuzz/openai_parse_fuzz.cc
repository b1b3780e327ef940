// The input is a request body: its first byte chooses the endpoint, the text behind a first line
// feed is taken as a body, the text before it as values of budget headers. Whatever it holds: no
// crash, an error is a whole 400 of bounded size, and a budget that resolves stays within its
// bounds.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "engine/kv/policy.h"
#include "server/budget_resolver.h"
#include "server/http/openai_parse.h"
#include "server/sampling_validator.h"

namespace headroom::server {
namespace {

constexpr size_t kMaxMessageBytes = 1024;
constexpr const char* kHeaders[] = {
    "x-kv-policy",  "x-kv-retention",  "x-tsp-ratio",  "x-kv-window",    "x-kv-strict",
    "x-kv-pool",    "x-kv-pool-width", "x-tsp-tokens", "x-kv-decode",    "x-kv-sink-tokens",
    "x-kv-options", "x-kv-mode",       "x-kv-scope",   "x-kv-head-check"};

void CheckError(const ApiError& error) {
  HEADROOM_CHECK(error.http_status == 400);
  HEADROOM_CHECK(error.type == "invalid_request_error" && !error.code.empty());
  HEADROOM_CHECK(!error.message.empty() && error.message.size() <= kMaxMessageBytes);
}

// Header values, separated by ';', of the headers above in turn.
std::vector<std::pair<std::string, std::string>> HeadersFrom(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> headers;
  size_t begin = 0;
  for (const char* name : kHeaders) {
    const size_t end = std::min(text.find(';', begin), text.size());
    if (end > begin) {
      headers.emplace_back(name, text.substr(begin, end - begin));
    }
    if (end == text.size()) {
      break;
    }
    begin = end + 1;
  }
  return headers;
}

void CheckResolved(const ResolvedBudget& budget) {
  const engine::KvPolicySpec& spec = budget.spec;
  HEADROOM_CHECK(spec.retention_ppm >= 1 && spec.retention_ppm <= engine::kPpm);
  HEADROOM_CHECK(spec.tsp_ppm >= 1 && spec.tsp_ppm <= engine::kPpm);
  HEADROOM_CHECK(spec.window >= 1 && spec.window <= 256);
  HEADROOM_CHECK(spec.pool_width >= 1 && spec.pool_width <= 31 && spec.pool_width % 2 == 1);
  HEADROOM_CHECK(spec.sink_tokens >= 0 && spec.sink_tokens <= 64);
  HEADROOM_CHECK(spec.min_prompt >= 0 && spec.tsp_min_prompt >= 0);
}

void Run(const std::string& input) {
  static const engine::KvPolicyRegistry policies;
  if (input.empty()) {
    return;
  }
  const size_t line = std::min(input.find('\n'), input.size() - 1);
  const Endpoint endpoint =
      (input[0] & 1) != 0 ? Endpoint::kChatCompletions : Endpoint::kCompletions;
  auto header = ParseBudgetHeaders(HeadersFrom(input.substr(0, line)));
  if (const auto* error = std::get_if<ApiError>(&header)) {
    CheckError(*error);
    header = BudgetFields{};
  }
  auto body = ParseBody(endpoint, input.substr(line + 1));
  if (const auto* error = std::get_if<ApiError>(&body)) {
    return CheckError(*error);
  }
  const GenerationRequest& request = std::get<ParsedBody>(body).request;
  HEADROOM_CHECK(!request.prompts.empty());
  HEADROOM_CHECK(std::get<ParsedBody>(body).num_unknown_fields >= 0);
  SamplingLimits limits;
  limits.vocab_size = 1000;
  engine::SamplingParams sampling;
  engine::StopCriteria stop;
  if (const auto error = ValidateSampling(request, {}, limits, &sampling, &stop)) {
    CheckError(*error);
  }
  const auto budget = ResolveBudget(request.body_budget, std::get<BudgetFields>(header), policies,
                                    /*prompt_tokens=*/1000);
  if (const auto* error = std::get_if<ApiError>(&budget)) {
    return CheckError(*error);
  }
  CheckResolved(std::get<ResolvedBudget>(budget));
}

}  // namespace
}  // namespace headroom::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  headroom::server::Run(std::string(data, data + size));
  return 0;
}
