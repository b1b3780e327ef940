// What a client asks for, after its protocol is parsed and before anything is validated.
//
// HTTP (and later gRPC) fill this struct; GenerationService validates it. An unset optional means
// that the client did not name the field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "models/chat_template/value.h"

namespace headroom::server {

// One member of kv_options, as parsed.
struct PolicyOption {
  std::string name;
  std::variant<bool, int64_t, double, std::string> value;
  bool operator==(const PolicyOption&) const = default;
};

// The budget fields of one source (body or headers), values as parsed but not range-checked.
// Ratios are parts per million.
struct BudgetFields {
  std::optional<std::string> kv_policy;
  std::optional<int64_t> kv_retention_ppm;
  std::optional<int64_t> tsp_ratio_ppm;
  std::optional<int64_t> kv_retention_tokens;
  std::optional<int64_t> tsp_tokens;
  std::optional<int64_t> kv_window;
  std::optional<int64_t> kv_window_raw;
  std::optional<std::string> kv_pool;
  std::optional<int64_t> kv_pool_width;
  std::optional<int64_t> kv_sink_tokens;
  std::optional<int64_t> kv_min_prompt;
  std::optional<int64_t> tsp_min_prompt;
  std::optional<std::string> kv_decode;
  std::optional<bool> kv_strict;
  std::optional<int64_t> kv_recovery_ppm;
  std::optional<std::string> kv_mode;
  std::optional<std::string> kv_scope;
  std::optional<bool> kv_head_check;
  // Members of kv_options, in order; never from a header.
  std::optional<std::vector<PolicyOption>> kv_options;
};

struct TextPrompt {
  std::string text;
};
struct TokenPrompt {
  std::vector<int64_t> ids;
};
// Exactly one of the two kinds of request.
struct ChatPrompt {
  models::Value messages;  // list of dicts, strings marked as message text
  models::Value tools;     // undefined when absent
};
using Prompt = std::variant<TextPrompt, TokenPrompt, ChatPrompt>;

struct GenerationRequest {
  std::string model;  // as the client wrote it; empty: not named
  std::vector<Prompt> prompts;  // one for chat; completions may send several
  std::optional<int64_t> max_tokens;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int64_t> top_k;
  std::optional<double> min_p;
  std::optional<double> presence_penalty;
  std::optional<double> frequency_penalty;
  std::optional<double> repetition_penalty;
  std::optional<int64_t> seed;
  std::optional<int64_t> n;
  std::vector<std::pair<int64_t, double>> logit_bias;
  std::vector<std::string> stop;
  std::vector<int64_t> stop_token_ids;
  std::optional<int64_t> min_tokens;
  bool ignore_eos = false;
  bool include_stop_str_in_output = false;
  std::optional<int64_t> num_logprobs;  // chat: logprobs true -> top_logprobs; completions: logprobs
  bool return_token_ids = false;
  bool trace_kv = false;  // command line only: the end carries the kept positions
  bool stream = false;
  bool include_usage = false;
  std::optional<double> timeout_s;  // total deadline, a Headroom extension
  BudgetFields body_budget;
  BudgetFields header_budget;
};

}  // namespace headroom::server
