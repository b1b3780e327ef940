// A request as the engine sees it, and the events that answer it. Plain data, immutable once
// submitted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/kv/budget.h"

namespace headroom::engine {

using RequestId = uint64_t;

struct SamplingParams {
  float temperature = 1.0f;                           // below 1e-5: greedy
  int32_t top_k = 0;                                  // 0: off
  float top_p = 1.0f;                                 // (0, 1]
  float min_p = 0.0f;                                 // [0, 1]
  float presence_penalty = 0.0f;                      // -2..2, over generated tokens
  float frequency_penalty = 0.0f;                     // -2..2, over generated tokens
  float repetition_penalty = 1.0f;                    // (0, 2], over prompt and generated tokens
  std::vector<std::pair<int32_t, float>> logit_bias;  // token id, -100..100
  uint64_t seed = 0;
  uint32_t choice = 0;        // Philox stream; choice c of a request draws from stream choice + c
  int32_t num_logprobs = -1;  // -1: none; k >= 0: the sampled token's and the k best
};

struct StopCriteria {
  int32_t max_new_tokens = 16;         // >= 1
  std::vector<int32_t> eos_token_ids;  // the model's union; empty under ignore_eos
  std::vector<int32_t> stop_token_ids;
  std::vector<std::string> stop_strings;  // 1..256 bytes each
  bool include_stop_string = false;
  // So many tokens come first, whatever they are: EOS and stop tokens are not sampled before, stop
  // strings not taken.
  int32_t min_new_tokens = 0;
};

struct Request {
  RequestId id = 0;                 // unique, given by the submitter
  std::vector<int32_t> prompt_ids;  // >= 1, each in [0, vocab)
  int32_t content_end = 0;  // one past the last content token of the prompt; prompt size if unknown
  SamplingParams sampling;
  StopCriteria stop;
  KvPolicySpec kv;
  int32_t num_choices = 1;        // >= 1; they share one prefill and differ in what is sampled
  int64_t deadline_ns = 0;        // on the engine's clock; 0: none
  int64_t queue_deadline_ns = 0;  // must have been admitted by then; 0: none
  bool decode_text = true;        // false: token ids only (a model without a tokenizer)
  bool trace_kv = false;          // the finish event carries the kept positions
};

enum class FinishReason : uint8_t { kStop, kLength };

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0.0f;  // natural log, of the model's distribution before temperature; >= -9999
};

struct SampledToken {
  int32_t token = 0;
  float logprob = 0.0f;           // set when num_logprobs >= 0
  std::vector<TokenLogprob> top;  // best first
};

// Kept positions after prefill: [layer][kv_head] -> ascending prompt positions.
struct KvTrace {
  std::vector<std::vector<std::vector<int32_t>>> kept;
};

struct RequestUsage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
};

// What happens to one choice of a request, in order: any number of kProgress and kTokens, then
// exactly one of kFinished, kFailed, kCancelled. Nothing after it.
struct RequestEvent {
  enum class Kind : uint8_t { kProgress, kTokens, kFinished, kFailed, kCancelled };
  Kind kind = Kind::kTokens;
  int32_t choice = 0;  // [0, Request::num_choices)

  // kProgress, told to choice 0: prompt rows read so far, of rows in all phases.
  int64_t rows_done = 0;
  int64_t rows_total = 0;

  // kTokens, and kFinished (what the last token added).
  std::vector<SampledToken> tokens;
  std::string text;  // whole UTF-8 that became certain; may be empty

  // kFinished
  FinishReason finish_reason = FinishReason::kStop;
  std::optional<std::string> stop_string;  // which one ended it
  std::optional<int32_t> stop_token;       // or which of stop_token_ids; an EOS sets neither
  std::optional<KvTrace> kv_trace;

  // The terminal kinds; kFinished has a final receipt, the same for all choices. The prompt was read
  // once, whatever number of choices names its tokens.
  RequestUsage usage;
  KvReceipt receipt;

  // kFailed. DeadlineExceeded: a deadline passed. Unavailable: the queue was full. CheckFits's
  // errors. Else what FailAll said.
  Status status;
  bool expired_in_queue = false;  // it was queue_deadline_ns, not deadline_ns
};

constexpr bool IsTerminal(RequestEvent::Kind kind) {
  return kind == RequestEvent::Kind::kFinished || kind == RequestEvent::Kind::kFailed ||
         kind == RequestEvent::Kind::kCancelled;
}

}  // namespace headroom::engine
