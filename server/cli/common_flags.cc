#include "server/cli/common_flags.h"

#include <charconv>

#include "base/log.h"
#include "server/budget_resolver.h"
#include "server/http/openai_budget.h"

namespace headroom::server {
namespace {

std::optional<int64_t> Named(int64_t value) {
  return value < 0 ? std::nullopt : std::optional<int64_t>(value);
}
std::optional<std::string> Named(const std::string& value) {
  return value.empty() ? std::nullopt : std::optional<std::string>(value);
}

Status ReadRatio(const std::string& text, const char* flag, std::optional<int64_t>* out) {
  if (text.empty()) {
    return OkStatus();
  }
  *out = ParseRatioPpm(text);
  if (!out->has_value()) {
    return InvalidArgument("{}: wanted a ratio in (0, 1] with at most six decimal places", flag);
  }
  return OkStatus();
}

// As the body's kv_options would be read.
Status ReadPolicyOptions(const std::string& text, BudgetFields* fields) {
  if (text.empty()) {
    return OkStatus();
  }
  const auto parsed = ParseJson(text);
  if (!std::holds_alternative<Json>(parsed)) {
    return InvalidArgument("--kv-options: wanted a JSON object");
  }
  const Json body = {{"kv_options", std::get<Json>(parsed)}};
  ObjectReader reader(body, "");
  ReadBudgetBody(reader, fields);
  return reader.error().has_value()
             ? InvalidArgument("--kv-options: wanted a JSON object of settings")
             : OkStatus();
}

}  // namespace

void AddRuntimeFlags(CLI::App* command, RuntimeFlags* flags) {
  RuntimeOptions& options = flags->options;
  command->add_option("model", options.model,
                      "GGUF file, Hugging Face directory, or builtin:NAME (needle-1hop, "
                      "needle-2hop, tiny)");
  command->add_option("--backend", options.backend, "cpu, or ref: slow, double precision")
      ->capture_default_str();
  command->add_option("--cpu-isa", options.cpu_isa, "auto, avx512, avx2 or scalar")
      ->capture_default_str();
  command->add_option("--threads", options.threads, "compute threads; 0: the CPUs at hand")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024));
  command->add_option("--kv-dtype", options.kv_dtype,
                      "what K and V are kept in: auto (cpu: bf16, ref: f32), f32, bf16, or int8 "
                      "with a scale per token and head")
      ->capture_default_str();
  command
      ->add_option("--kv-memory-mib", options.kv_memory_mib,
                   "memory of the KV pool; 0: up to eight full contexts, 40 % of free memory")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
  command->add_option("--kv-pages", options.kv_pages, "pages of the KV pool, instead of its memory")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 31));
  command
      ->add_option("--kv-overcommit", options.kv_overcommit,
                   "admit until reservations are so many times the pool; above 1 the latest "
                   "request is preempted when pages run out")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 100.0));
  command
      ->add_option("--max-context", options.max_context,
                   "longest prompt plus answer; 0: the model's")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 30));
  command
      ->add_option("--tsp-layer", options.tsp_layer,
                   "layer above which tsp_ratio acts; -1: the head map's, else "
                   "max(0, layers / 2 - 1)")
      ->capture_default_str()
      ->check(CLI::Range(-1, 4096));
  command
      ->add_option("--head-map", options.head_map,
                   "what `headroom profile` found out about the model's heads; brings the "
                   "policy adaptive")
      ->type_name("FILE");
  command
      ->add_option("--head-map-check", options.head_map_check,
                   "a map of other weights or a failed validation: strict refuses, warn goes on")
      ->capture_default_str();
  command
      ->add_option("--prefer", options.prefer,
                   "what adaptive spends a budget for: answers, balanced or fluency")
      ->capture_default_str();
  command->add_option("--max-batch-rows", options.max_batch_rows, "rows of one step")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
  command->add_option("--max-running", options.max_running, "sequences that run at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
  command->add_option("--max-queued", options.max_queued, "requests that may wait")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  command
      ->add_option("--step-time-ms", options.step_time_ms,
                   "aim for a step while others decode; prompts are cut to fit")
      ->capture_default_str()
      ->check(CLI::Range(1, 60000));
  command->add_flag("--check-invariants", options.check_invariants,
                    "check the engine's invariants after every step (slow)");
  command->add_option("--log-level", flags->log_level, "debug, info, warning or error")
      ->capture_default_str();
}

Status FinishRuntimeFlags(const RuntimeFlags& flags) {
  if (flags.options.model.empty()) {
    return InvalidArgument("model: wanted a GGUF file, a Hugging Face directory or builtin:NAME");
  }
  const std::string& level = flags.log_level;
  if (level == "debug") {
    SetLogLevel(LogLevel::kDebug);
  } else if (level == "info") {
    SetLogLevel(LogLevel::kInfo);
  } else if (level == "warning") {
    SetLogLevel(LogLevel::kWarning);
  } else if (level == "error") {
    SetLogLevel(LogLevel::kError);
  } else {
    return InvalidArgument("--log-level: got {}, wanted debug, info, warning or error", level);
  }
  return OkStatus();
}

void AddBudgetFlags(CLI::App* command, BudgetFlags* flags) {
  command->add_option("--kv-policy", flags->policy,
                      "full, streaming, h2o, scissorhands, snapkv, adakv, pyramidinfer, gemfilter, "
                      "fastkv, fastgen, random, or adaptive (with --head-map)");
  command->add_option("--kv-retention", flags->retention,
                      "share of the prompt's KV entries to keep, (0, 1]");
  command->add_option("--tsp-ratio", flags->tsp_ratio,
                      "share of the prompt's rows that go on above the TSP layer, (0, 1]");
  command->add_option("--kv-retention-tokens", flags->retention_tokens,
                      "the same as a count per layer and head; the smaller wins");
  command->add_option("--tsp-tokens", flags->tsp_tokens, "the same as a count; the smaller wins");
  command->add_option("--kv-window", flags->window, "window rows from the last content token");
  command->add_option("--kv-window-raw", flags->window_raw, "window rows from the prompt's end");
  command->add_option("--kv-pool", flags->pool, "pooling of window scores: max or avg");
  command->add_option("--kv-pool-width", flags->pool_width, "odd, 1 to 31");
  command->add_option("--kv-sink-tokens", flags->sink_tokens, "always kept at the front");
  command->add_option("--kv-min-prompt", flags->min_prompt, "shorter prompts keep everything");
  command->add_option("--tsp-min-prompt", flags->tsp_min_prompt, "shorter prompts run whole");
  command->add_option("--kv-recovery", flags->recovery,
                      "attention that heads keep at least under fastgen and --kv-mode recovery, "
                      "(0, 1)");
  command->add_option("--kv-options", flags->options,
                      "settings of the policy alone, a JSON object: {\"alpha\": 0.5}");
  command->add_option("--kv-decode", flags->decode, "grow or typed");
  command->add_option("--kv-mode", flags->mode,
                      "adaptive: budget, recovery (the head map's target binds) or both");
  command->add_option("--kv-scope", flags->scope,
                      "adaptive: one pool of the whole model, or layer: one of each layer");
  command->add_flag("--kv-head-check", flags->head_check,
                    "adaptive: held-out rows of the prompt may give a head more");
  command->add_flag("--kv-strict", flags->strict, "refuse instead of deviating");
}

StatusOr<BudgetFields> ToBudgetFields(const BudgetFlags& flags) {
  BudgetFields fields;
  fields.kv_policy = Named(flags.policy);
  HEADROOM_RETURN_IF_ERROR(ReadRatio(flags.retention, "--kv-retention", &fields.kv_retention_ppm));
  HEADROOM_RETURN_IF_ERROR(ReadRatio(flags.tsp_ratio, "--tsp-ratio", &fields.tsp_ratio_ppm));
  HEADROOM_RETURN_IF_ERROR(ReadRatio(flags.recovery, "--kv-recovery", &fields.kv_recovery_ppm));
  HEADROOM_RETURN_IF_ERROR(ReadPolicyOptions(flags.options, &fields));
  fields.kv_retention_tokens = Named(flags.retention_tokens);
  fields.tsp_tokens = Named(flags.tsp_tokens);
  fields.kv_window = Named(flags.window);
  fields.kv_window_raw = Named(flags.window_raw);
  fields.kv_pool = Named(flags.pool);
  fields.kv_pool_width = Named(flags.pool_width);
  fields.kv_sink_tokens = Named(flags.sink_tokens);
  fields.kv_min_prompt = Named(flags.min_prompt);
  fields.tsp_min_prompt = Named(flags.tsp_min_prompt);
  fields.kv_decode = Named(flags.decode);
  fields.kv_mode = Named(flags.mode);
  fields.kv_scope = Named(flags.scope);
  if (flags.head_check) {
    fields.kv_head_check = true;
  }
  if (flags.strict) {
    fields.kv_strict = true;
  }
  return fields;
}

StatusOr<std::vector<int64_t>> ParseNumbers(const std::string& text, const std::string& flag) {
  std::vector<int64_t> numbers;
  const char* at = text.data();
  const char* end = text.data() + text.size();
  while (at != end) {
    if (*at == ',' || *at == ' ' || *at == '\n' || *at == '\t' || *at == '[' || *at == ']') {
      ++at;
      continue;
    }
    int64_t value = 0;
    const auto parsed = std::from_chars(at, end, value);
    if (parsed.ec != std::errc()) {
      return InvalidArgument("{}: byte {}: wanted integers separated by commas", flag,
                             at - text.data());
    }
    numbers.push_back(value);
    at = parsed.ptr;
  }
  if (numbers.empty()) {
    return InvalidArgument("{}: wanted at least one integer", flag);
  }
  return numbers;
}

}  // namespace headroom::server
