#include "engine/capacity.h"

#include <algorithm>

#include "engine/kv/prefill_plan.h"

namespace headroom::engine {
namespace {

Status CheckTokens(const Request& request, const EngineShape& shape) {
  if (request.prompt_ids.empty()) {
    return InvalidArgument("the prompt has no tokens; at least 1 is needed");
  }
  for (size_t i = 0; i < request.prompt_ids.size(); ++i) {
    const int32_t id = request.prompt_ids[i];
    if (id < 0 || id >= shape.vocab_size) {
      return InvalidArgument("prompt token {} is {}; ids of this model are 0 to {}", i, id,
                             shape.vocab_size - 1);
    }
  }
  const auto num_prompt = static_cast<int64_t>(request.prompt_ids.size());
  if (request.stop.max_new_tokens < 1) {
    return InvalidArgument("max_new_tokens is {}; at least 1 is needed",
                           request.stop.max_new_tokens);
  }
  if (request.num_choices < 1) {
    return InvalidArgument("num_choices is {}; at least 1 is needed", request.num_choices);
  }
  if (num_prompt + request.stop.max_new_tokens > shape.max_context_tokens) {
    return ContextLengthError(shape.max_context_tokens, num_prompt, request.stop.max_new_tokens);
  }
  return OkStatus();
}

}  // namespace

Status ContextLengthError(int64_t max_context_tokens, int64_t prompt_tokens, int64_t new_tokens) {
  return OutOfRange(
      "This model's maximum context length is {} tokens. However, you requested {} tokens ({} in "
      "the prompt, {} in the completion). Please reduce the length of the prompt or the "
      "completion.",
      max_context_tokens, static_cast<uint64_t>(prompt_tokens) + static_cast<uint64_t>(new_tokens),
      prompt_tokens, new_tokens);
}

PromptInfo PromptInfoOf(const Request& request, const TokenClasses& classes) {
  const auto num_tokens = static_cast<int32_t>(request.prompt_ids.size());
  // An unset or impossible content end means that nothing is known of the template.
  const bool known = request.content_end >= 1 && request.content_end <= num_tokens;
  return {.num_tokens = num_tokens,
          .content_end = known ? request.content_end : num_tokens,
          .classes = ClassifyPrompt(classes, request.prompt_ids)};
}

int32_t NumLayersOf(const PrefillPhase& phase) {
  return std::max(1, phase.layer_end - phase.layer_begin);
}

StatusOr<Capacity> CapacityOf(const Request& request, const EngineShape& shape,
                              const KvPolicyRegistry& policies) {
  HEADROOM_RETURN_IF_ERROR(CheckTokens(request, shape));
  const KvPolicy* policy = policies.Find(request.kv.policy);
  if (policy == nullptr) {
    return InvalidArgument("unknown kv_policy");
  }
  HEADROOM_RETURN_IF_ERROR(policy->Validate(request.kv));
  HEADROOM_RETURN_IF_ERROR(policy->ValidateShape(request.kv, shape.kv));

  const PromptInfo prompt = PromptInfoOf(request, shape.token_classes);
  const KvFootprint footprint =
      policy->Footprint(request.kv, shape.kv, prompt, request.stop.max_new_tokens);
  Capacity capacity;
  capacity.prefill_pages = footprint.prefill_peak_pages;
  capacity.shared_pages = footprint.shared_pages;
  capacity.choice_pages = footprint.steady_pages - footprint.shared_pages;
  const int64_t steady_pages = capacity.SteadyPages(request.num_choices);
  capacity.peak_pages = std::max(footprint.prefill_peak_pages, steady_pages);
  if (capacity.peak_pages > shape.num_pages) {
    return ResourceExhausted(
        "the request needs {} KV pages ({} to read the prompt, {} to generate); the pool has {}",
        capacity.peak_pages, footprint.prefill_peak_pages, steady_pages, shape.num_pages);
  }

  const PrefillPlan plan = MakePrefillPlan(*policy, request.kv, shape.kv, prompt);
  capacity.first_phase = plan.phases.front();
  for (const int32_t rows : plan.phase_rows) {
    capacity.rows_total += rows;
  }
  return capacity;
}

}  // namespace headroom::engine
