#include "server/runtime.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "base/available_memory.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "engine/kv/head_map_binding.h"
#include "engine/kv/policies/policies.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/ref/ref_backend.h"

namespace headroom::server {
namespace {

constexpr int32_t kCapacityPromptTokens = 8192;

StatusOr<std::unique_ptr<kernels::Backend>> CreateBackend(const RuntimeOptions& options) {
  if (options.backend == "ref") {
    return kernels::CreateRefBackend(std::max(1, options.threads));
  }
  if (options.backend != "cpu") {
    return InvalidArgument("--backend: got {}, wanted cpu or ref", options.backend);
  }
  kernels::CpuBackendOptions cpu;
  cpu.isa = options.cpu_isa;
  cpu.num_threads = options.threads;
  return kernels::CreateCpuBackend(cpu);
}

StatusOr<kernels::KvDType> ChooseKvDType(const std::string& name,
                                         const kernels::Backend& backend) {
  if (name == "auto") {
    return backend.default_kv_dtype();
  }
  if (name == "f32") {
    return kernels::KvDType::kF32;
  }
  if (name == "bf16") {
    return kernels::KvDType::kBF16;
  }
  if (name == "int8") {
    return kernels::KvDType::kInt8;
  }
  return InvalidArgument("--kv-dtype: got {}, wanted auto, f32, bf16 or int8", name);
}

// Pages of one sequence of `tokens` with nothing evicted.
int64_t FullPages(const engine::KvModelShape& shape, int64_t tokens) {
  return static_cast<int64_t>(shape.num_layers) * shape.num_kv_heads *
         ((tokens + kernels::kPageSize - 1) / kernels::kPageSize);
}

}  // namespace

Runtime::Runtime(const RuntimeOptions& options, const Clock& clock)
    : options_(options), clock_(clock) {}

// The loop stops before the engine that it drives.
Runtime::~Runtime() { loop_.reset(); }

StatusOr<std::unique_ptr<Runtime>> Runtime::Create(const RuntimeOptions& options,
                                                   const Clock& clock) {
  std::unique_ptr<Runtime> runtime(new Runtime(options, clock));
  HEADROOM_ASSIGN_OR_RETURN(runtime->backend_, CreateBackend(options));
  {
    models::LoadedModel loaded;
    HEADROOM_RETURN_IF_ERROR(runtime->LoadModelFiles(&loaded));
    HEADROOM_RETURN_IF_ERROR(runtime->LoadHeadMap(loaded));
    HEADROOM_RETURN_IF_ERROR(runtime->BuildEngine(loaded));
    runtime->tokenizer_ = std::move(loaded.tokenizer);
    // `loaded` ends here: the weights are packed, the mapped files are released.
  }
  engine::EngineConfig config;
  config.limits.max_running = options.max_running;
  config.limits.max_queued = options.max_queued;
  config.limits.max_rows = options.max_batch_rows;
  config.limits.step_time_ns = int64_t{options.step_time_ms} * 1'000'000;
  config.limits.num_pages = runtime->cache_->pool().num_pages();
  config.max_context_tokens = runtime->max_context_;
  config.kv_overcommit = options.kv_overcommit;
  config.check_invariants = options.check_invariants;
  runtime->engine_ =
      std::make_unique<engine::Engine>(config, *runtime->transformer_, *runtime->cache_,
                                       runtime->policies_, runtime->tokenizer_.get(), &clock);
  HEADROOM_RETURN_IF_ERROR(runtime->SelfTest());
  runtime->loop_ =
      std::make_unique<engine::EngineLoop>(*runtime->engine_, clock, options.max_queued);
  runtime->created_unix_s_ = std::chrono::duration_cast<std::chrono::seconds>(
                                 std::chrono::system_clock::now().time_since_epoch())
                                 .count();
  return runtime;
}

Status Runtime::LoadModelFiles(models::LoadedModel* loaded) {
  HEADROOM_ASSIGN_OR_RETURN(*loaded, models::LoadModel(options_.model));
  model_name_ = loaded->name;
  config_ = loaded->config;
  eos_token_ids_ = loaded->eos_token_ids;
  generation_defaults_ = loaded->generation_defaults;
  num_parameters_ = loaded->num_parameters;
  if (loaded->chat_template.has_value()) {
    auto parsed = models::ChatTemplate::Parse(*loaded->chat_template);
    if (parsed.ok()) {
      chat_template_ = std::move(parsed).value();
    } else {
      chat_template_error_ = StatusMessage(parsed.status());
      LogWarning("event=chat_template_unusable reason=\"{}\"", chat_template_error_);
    }
  }
  return OkStatus();
}

// The map of --head-map, if it belongs to this model, and the policy that spends by it.
Status Runtime::LoadHeadMap(const models::LoadedModel& loaded) {
  const auto check = engine::FindHeadMapCheck(options_.head_map_check);
  if (!check.has_value()) {
    return InvalidArgument("--head-map-check: got {}, wanted strict or warn",
                           options_.head_map_check);
  }
  if (options_.prefer != "answers" && options_.prefer != "balanced" &&
      options_.prefer != "fluency") {
    return InvalidArgument("--prefer: got {}, wanted answers, balanced or fluency",
                           options_.prefer);
  }
  if (options_.head_map.empty()) {
    return OkStatus();
  }
  StatusOr<engine::HeadMap> map = engine::LoadHeadMap(options_.head_map);
  if (!map.ok()) {
    return InvalidArgument("--head-map: {}", StatusMessage(map.status()));
  }
  const int threads = options_.threads > 0 ? options_.threads : AvailableCpus();
  const auto binding = engine::CheckBinding(*map, engine::IdentifyModel(loaded, threads), *check);
  if (!binding.ok()) {
    return InvalidArgument("--head-map: {}: {}", options_.head_map,
                           StatusMessage(binding.status()));
  }
  for (const std::string& warning : binding->warnings) {
    LogWarning("event=head_map_warning reason=\"{}\"", warning);
  }
  LoadedHeadMap& bound = head_map_.emplace();
  bound.info = {.hash = map->hash,
                .theta_ppm = map->profile.theta_ppm,
                .profiled_tokens = engine::ProfiledTokens(*map),
                .other_weights = binding->other_weights};
  bound.map = engine::BindHeadMap(std::move(map).value(), *binding);
  policies_.Add(engine::MakeAdaptivePolicy(bound.map, options_.prefer));
  LogInfo("event=head_map_loaded hash={} validation={} prefer={}", bound.info.hash,
          bound.map->validation.status, options_.prefer);
  return OkStatus();
}

// The layer above which TSP acts: the flag, else the map's, else FastKV's rule.
int32_t Runtime::ChooseTspLayer() const {
  if (options_.tsp_layer >= 0) {
    return options_.tsp_layer;
  }
  return head_map_.has_value() ? head_map_->map->tsp.layer
                               : std::max(0, config_.num_hidden_layers / 2 - 1);
}

Status Runtime::BuildEngine(const models::LoadedModel& loaded) {
  const int32_t model_context = config_.max_position_embeddings;
  if (options_.max_context < 0 || options_.max_context > model_context) {
    return InvalidArgument("--max-context: got {}, wanted at most the model's {}",
                           options_.max_context, model_context);
  }
  max_context_ = options_.max_context > 0 ? options_.max_context : model_context;
  shape_.num_layers = config_.num_hidden_layers;
  shape_.num_kv_heads = config_.num_key_value_heads;
  shape_.tsp_layer = ChooseTspLayer();
  if (shape_.tsp_layer >= shape_.num_layers) {
    return InvalidArgument("--tsp-layer: got {}, wanted below the model's {} layers",
                           shape_.tsp_layer, shape_.num_layers);
  }
  geometry_.num_kv_heads = config_.num_key_value_heads;
  geometry_.group_size = config_.group_size();
  geometry_.head_dim = config_.head_dim;
  HEADROOM_ASSIGN_OR_RETURN(geometry_.dtype, ChooseKvDType(options_.kv_dtype, *backend_));

  models::TransformerOptions transformer;
  transformer.max_rows = options_.max_batch_rows;
  transformer.max_context = max_context_;
  HEADROOM_ASSIGN_OR_RETURN(transformer_, models::Transformer::Create(config_, loaded.weights,
                                                                      *backend_, transformer));
  engine::KvCacheConfig cache;
  cache.num_layers = config_.num_hidden_layers;
  cache.hidden_size = config_.hidden_size;
  cache.attention_scale = transformer_->attention_scale();
  cache.tsp_layer = shape_.tsp_layer;
  cache.geometry = geometry_;
  cache.keeps_replay = options_.kv_overcommit > 1.0;
  HEADROOM_ASSIGN_OR_RETURN(cache.num_pages, ChoosePages());
  HEADROOM_ASSIGN_OR_RETURN(cache_, engine::KvCache::Create(cache, *backend_, policies_, clock_));
  return OkStatus();
}

// Auto: eight full-context sequences, within 40 % of the available memory, and at least one.
StatusOr<int32_t> Runtime::ChoosePages() const {
  const int64_t page_bytes = static_cast<int64_t>(backend_->KvPageBytes(geometry_));
  const int64_t one_sequence = FullPages(shape_, max_context_) + FullPages(shape_, 1);
  int64_t pages = options_.kv_pages;
  if (pages == 0 && options_.kv_memory_mib > 0) {
    pages = options_.kv_memory_mib * (int64_t{1} << 20) / page_bytes;
  }
  if (pages == 0) {
    const int64_t available = AvailableMemoryBytes() / page_bytes;
    pages = std::min(std::max(one_sequence, std::min(8 * one_sequence, available * 2 / 5)),
                     available * 4 / 5);
  }
  const int64_t least = FullPages(shape_, 2 * kernels::kPageSize);
  if (pages < least || pages > std::numeric_limits<int32_t>::max()) {
    return InvalidArgument(
        "the KV pool would have {} pages of {} bytes, wanted {} to {}: set --kv-memory-mib",
        pages, page_bytes, least, std::numeric_limits<int32_t>::max());
  }
  return static_cast<int32_t>(pages);
}

// One token through the whole stack, so that "ready" means able to answer.
Status Runtime::SelfTest() {
  auto request = std::make_shared<engine::Request>();
  request->prompt_ids = {0};
  request->content_end = 1;
  request->sampling.temperature = 0.0f;
  request->stop.max_new_tokens = 1;
  request->decode_text = false;
  HEADROOM_RETURN_IF_ERROR(engine_->CheckFits(*request));
  std::vector<engine::Command> commands;
  commands.push_back(engine::SubmitCommand{request, clock_.NowNs()});
  for (int step = 0; step < 8; ++step) {
    for (const engine::EngineEvent& event : engine_->Step(clock_.NowNs(), std::move(commands))) {
      if (event.event.kind == engine::RequestEvent::Kind::kFinished) {
        return OkStatus();
      }
      if (event.event.kind == engine::RequestEvent::Kind::kFailed) {
        return event.event.status;
      }
    }
    commands.clear();
  }
  return Internal("self-test: one token of one prompt did not finish in 8 steps");
}

std::string Runtime::CapacityText() const {
  const int32_t tokens = std::min(kCapacityPromptTokens, max_context_);
  engine::PromptInfo prompt;
  prompt.num_tokens = tokens;
  prompt.content_end = tokens;
  engine::KvPolicySpec full;
  engine::KvPolicySpec fifth;
  fifth.policy = "fastkv";
  fifth.retention_ppm = engine::kPpm / 5;
  fifth.min_prompt = 0;
  const auto fits = [&](const engine::KvPolicySpec& spec) {
    const engine::KvFootprint footprint =
        policies_.Find(spec.policy)->Footprint(spec, shape_, prompt, /*max_new_tokens=*/1);
    return cache_->pool().num_pages() / std::max<int64_t>(1, footprint.steady_pages);
  };
  const std::string length =
      tokens % 1024 == 0 ? fmt::format("{}K", tokens / 1024) : fmt::format("{} tokens", tokens);
  return fmt::format("{} sequences of {} full, {} at retention 0.2", fits(full), length,
                     fits(fifth));
}

}  // namespace headroom::server
