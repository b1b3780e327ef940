#include "server/generation_service.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <random>
#include <utility>

#include "base/log.h"
#include "engine/capacity.h"
#include "engine/kv/prefill_plan.h"
#include "server/prompt_encoder.h"
#include "server/sampling_validator.h"

namespace headroom::server {
namespace {

constexpr int32_t kCompletionDefaultTokens = 16;
constexpr int64_t kNsPerS = 1'000'000'000;
constexpr int64_t kMaxChoices = 128;  // prompts * n of one request

// Seeds of requests that name none; any thread.
uint64_t RandomSeed() {
  thread_local std::mt19937_64 generator{std::random_device{}()};
  return generator() >> 1;  // fits a signed 64-bit field
}

}  // namespace

struct GenerationService::Impl {
  Runtime& runtime;
  const Clock& clock;
  std::atomic<engine::RequestId> next_id{1};
  mutable std::atomic<bool> noted_unprofiled_length{false};
  mutable std::atomic<bool> noted_no_head_map{false};

  Impl(Runtime& runtime_in, const Clock& clock_in) : runtime(runtime_in), clock(clock_in) {}

  void NoteUnprofiledLength(int64_t prompt_tokens) const;
  std::optional<ApiError> CheckModel(const GenerationRequest& request) const;
  std::optional<ApiError> CheckBudgetExact(const engine::PromptInfo& prompt,
                                           ResolvedBudget* budget) const;
  std::optional<ApiError> CheckLength(const GenerationRequest& request, engine::Request base) const;
  std::optional<ApiError> ChooseMaxTokens(const GenerationRequest& request,
                                          engine::Request* engine_request) const;
  std::optional<ApiError> PreparePrompt(const GenerationRequest& request, const Prompt& prompt,
                                        Submission* submission,
                                        std::vector<engine::Request>* prepared) const;
};

GenerationService::GenerationService(Runtime& runtime, const Clock& clock)
    : impl_(std::make_shared<Impl>(runtime, clock)) {}

std::optional<ApiError> GenerationService::Impl::CheckModel(
    const GenerationRequest& request) const {
  if (request.model.empty() || request.model == runtime.model_name()) {
    return std::nullopt;
  }
  ApiError error = BadRequest(
      "model_not_found",
      fmt::format("model: this server serves {}; see /v1/models", runtime.model_name()), "model");
  error.http_status = 404;
  return error;
}

// Logged once: a prompt far longer than those that the head map was made on.
void GenerationService::Impl::NoteUnprofiledLength(int64_t prompt_tokens) const {
  const HeadMapInfo& info = runtime.head_map()->info;
  if (!info.other_weights && NeedsHeadCheck(info, prompt_tokens) &&
      !noted_unprofiled_length.exchange(true, std::memory_order_relaxed)) {
    LogWarning("event=head_map_range prompt_tokens={} profiled_tokens={} effect=kv_head_check",
               prompt_tokens, info.profiled_tokens);
  }
}

// A must-keep set that overruns the budget is noted; under kv_strict it is refused before anything
// runs.
std::optional<ApiError> GenerationService::Impl::CheckBudgetExact(const engine::PromptInfo& prompt,
                                                                  ResolvedBudget* budget) const {
  const engine::KvPolicySpec& spec = budget->spec;
  const engine::PrefillPlan plan =
      engine::MakePrefillPlan(*runtime.policies().Find(spec.policy), spec, runtime.shape(), prompt);
  if (std::find(plan.reasons.begin(), plan.reasons.end(), "floor") == plan.reasons.end()) {
    return std::nullopt;
  }
  if (!spec.strict) {
    budget->reasons.push_back("floor");
    return std::nullopt;
  }
  return BadRequest("budget_not_exact",
                    fmt::format("sinks and window of this prompt of {} tokens are larger than its "
                                "budget",
                                prompt.num_tokens),
                    "kv_strict");
}

// The context length alone, before any budget is looked at.
std::optional<ApiError> GenerationService::Impl::CheckLength(const GenerationRequest& request,
                                                             engine::Request base) const {
  const int64_t new_tokens = request.max_tokens.value_or(1);
  base.stop.max_new_tokens = static_cast<int32_t>(std::min<int64_t>(new_tokens, INT32_MAX));
  Status fits = runtime.engine().CheckFits(base);
  if (fits.code() != StatusCode::kOutOfRange) {
    return std::nullopt;
  }
  if (new_tokens > INT32_MAX) {  // the number that was sent, not the one that fits
    fits = engine::ContextLengthError(runtime.max_context(),
                                      static_cast<int64_t>(base.prompt_ids.size()), new_tokens);
  }
  ApiError error = FromStatus(fits);
  error.param = std::holds_alternative<ChatPrompt>(request.prompts.front()) ? "messages" : "prompt";
  return error;
}

// Explicit counts are checked as they are; an implicit one is the rest of the context, or what
// the pool can hold beside the prompt.
std::optional<ApiError> GenerationService::Impl::ChooseMaxTokens(
    const GenerationRequest& request, engine::Request* engine_request) const {
  const auto prompt_tokens = static_cast<int64_t>(engine_request->prompt_ids.size());
  const int64_t room = runtime.max_context() - prompt_tokens;
  const bool is_chat = std::holds_alternative<ChatPrompt>(request.prompts.front());
  const bool implicit = !request.max_tokens.has_value();
  int64_t wanted = is_chat ? room : std::min<int64_t>(kCompletionDefaultTokens, room);
  wanted = std::max<int64_t>(request.max_tokens.value_or(wanted), 1);
  engine_request->stop.max_new_tokens = static_cast<int32_t>(std::min<int64_t>(wanted, INT32_MAX));
  Status fits = runtime.engine().CheckFits(*engine_request);
  if (implicit && fits.code() == StatusCode::kResourceExhausted) {
    int32_t low = 1;
    int32_t high = engine_request->stop.max_new_tokens;
    while (low < high) {
      engine_request->stop.max_new_tokens = low + (high - low + 1) / 2;
      if (runtime.engine().CheckFits(*engine_request).ok()) {
        low = engine_request->stop.max_new_tokens;
      } else {
        high = engine_request->stop.max_new_tokens - 1;
      }
    }
    engine_request->stop.max_new_tokens = low;
    fits = runtime.engine().CheckFits(*engine_request);
  }
  if (fits.ok()) {
    return std::nullopt;
  }
  ApiError error = FromStatus(fits);
  error.param = is_chat ? "messages" : "prompt";
  return error;
}

std::optional<ApiError> GenerationService::Impl::PreparePrompt(
    const GenerationRequest& request, const Prompt& prompt, Submission* submission,
    std::vector<engine::Request>* prepared) const {
  engine::Request base;
  base.num_choices =
      static_cast<int32_t>(std::clamp<int64_t>(request.n.value_or(1), 1, kMaxChoices));
  SamplingLimits limits;
  limits.vocab_size = runtime.config().vocab_size;
  if (auto error = ValidateSampling(request, runtime.generation_defaults(), limits, &base.sampling,
                                    &base.stop)) {
    return error;
  }
  auto encoded = EncodePrompt(prompt, runtime, clock);
  if (auto* error = std::get_if<ApiError>(&encoded)) {
    return std::move(*error);
  }
  auto& text = std::get<EncodedPrompt>(encoded);
  base.prompt_ids = std::move(text.ids);
  base.content_end = text.content_end;
  if (auto error = CheckLength(request, base)) {
    return error;
  }
  auto budget =
      ResolveBudget(request.body_budget, request.header_budget, runtime.policies(),
                    static_cast<int64_t>(base.prompt_ids.size()), runtime.head_map_info());
  if (auto* error = std::get_if<ApiError>(&budget)) {
    return std::move(*error);
  }
  auto& resolved = std::get<ResolvedBudget>(budget);
  const engine::KvPolicy* policy = runtime.policies().Find(resolved.spec.policy);
  if (const Status fits = policy->ValidateShape(resolved.spec, runtime.shape()); !fits.ok()) {
    return BadRequest("invalid_budget", StatusMessage(fits), "kv_options");
  }
  base.kv = resolved.spec;
  base.decode_text = runtime.tokenizer() != nullptr;
  base.trace_kv = request.trace_kv;
  if (!request.ignore_eos) {
    base.stop.eos_token_ids = runtime.eos_token_ids();
  }
  if (!base.decode_text && !base.stop.stop_strings.empty()) {
    return BadRequest("unsupported_parameter",
                      "stop: this model has no tokenizer; use stop_token_ids", "stop");
  }
  if (auto error = ChooseMaxTokens(request, &base)) {
    return error;
  }
  if (!resolved.head_map.empty()) {
    NoteUnprofiledLength(static_cast<int64_t>(base.prompt_ids.size()));
  } else if (!resolved.reasons.empty() && resolved.reasons.front() == "no_head_map" &&
             !noted_no_head_map.exchange(true, std::memory_order_relaxed)) {
    LogInfo("event=no_head_map effect=\"budgets are spent by fastkv\"");
  }
  if (auto error = CheckBudgetExact(runtime.engine().DescribePrompt(base), &resolved)) {
    return error;
  }
  if (request.timeout_s.has_value()) {
    const double capped = std::min(*request.timeout_s, 1e9);
    base.deadline_ns = clock.NowNs() + static_cast<int64_t>(capped * static_cast<double>(kNsPerS));
  }
  submission->prompt_ids.push_back(base.prompt_ids);
  submission->budgets.push_back(std::move(resolved));
  prepared->push_back(std::move(base));
  return std::nullopt;
}

std::variant<Submission, ApiError> GenerationService::Submit(const GenerationRequest& request,
                                                             std::function<void()> wake) {
  Impl& impl = *impl_;
  if (auto error = impl.CheckModel(request)) {
    return *error;
  }
  Submission submission;
  std::vector<engine::Request> prepared;
  for (const Prompt& prompt : request.prompts) {
    if (auto error = impl.PreparePrompt(request, prompt, &submission, &prepared)) {
      return *error;
    }
  }
  submission.num_choices_per_prompt = request.n.value_or(1);
  submission.num_logprobs = request.num_logprobs.value_or(-1);
  submission.seed = request.seed.has_value() ? static_cast<uint64_t>(*request.seed) : RandomSeed();
  const int64_t num_choices =
      static_cast<int64_t>(prepared.size()) * submission.num_choices_per_prompt;
  if (num_choices > kMaxChoices) {
    return BadRequest(
        "invalid_value",
        fmt::format("prompt and n: {} choices, wanted at most {}", num_choices, kMaxChoices), "n");
  }
  for (engine::Request& base : prepared) {
    base.id = impl.next_id.fetch_add(1, std::memory_order_relaxed);
    base.sampling.seed = submission.seed;
    const engine::RequestId id = base.id;
    auto streams =
        impl.runtime.loop().Submit(std::make_shared<engine::Request>(std::move(base)), wake);
    if (!streams.ok()) {
      Cancel(submission);
      return FromStatus(streams.status());
    }
    for (auto& stream : *streams) {
      submission.choices.push_back({id, std::move(stream)});
    }
  }
  return submission;
}

void GenerationService::Cancel(const Submission& submission) {
  for (const SubmittedChoice& choice : submission.choices) {
    impl_->runtime.loop().Cancel(choice.id);
  }
}

}  // namespace headroom::server
