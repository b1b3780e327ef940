// GenerationService: protocol-neutral. Validates, renders the template, tokenises, resolves the
// budgets, checks the lengths and submits, in the order of the wire's parse order; the first fault
// is the answer and nothing is queued.
//
// Any thread (the transport's front-end pool); holds no per-request state of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "engine/engine_loop.h"
#include "engine/request.h"
#include "server/api_error.h"
#include "server/budget_resolver.h"
#include "server/generation_request.h"
#include "server/runtime.h"

namespace headroom::server {

// One submitted choice: prompt p, choice c has index p * n + c.
struct SubmittedChoice {
  engine::RequestId id = 0;  // of the prompt's request, the same for its n choices
  std::shared_ptr<engine::EventStream> stream;
};

struct Submission {
  std::vector<SubmittedChoice> choices;
  std::vector<std::vector<int32_t>> prompt_ids;  // by prompt
  std::vector<ResolvedBudget> budgets;           // by prompt
  int64_t num_choices_per_prompt = 1;
  uint64_t seed = 0;           // the effective one
  int64_t num_logprobs = -1;   // -1: none were asked for
};

class GenerationService {
 public:
  // References outlive the service.
  GenerationService(Runtime& runtime, const Clock& clock);

  // `wake` is called on the engine thread whenever a stream of this submission has events; it must
  // not block and may be called after the reader is gone (so it owns what it touches). Either all
  // choices are submitted or none. The choices of a prompt are one request and share its prefill.
  std::variant<Submission, ApiError> Submit(const GenerationRequest& request,
                                            std::function<void()> wake);
  void Cancel(const Submission& submission);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace headroom::server
