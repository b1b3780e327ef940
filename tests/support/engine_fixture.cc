#include "tests/support/engine_fixture.h"

#include "base/check.h"
#include "base/log.h"
#include "base/philox.h"
#include "kernels/ref/ref_backend.h"
#include "tests/support/ragged_policy.h"
#include "tests/support/test_map.h"

namespace headroom::testing {

using engine::Command;
using engine::EngineEvent;
using engine::Request;
using engine::RequestEvent;

EngineFixture::EngineFixture(const EngineFixtureOptions& options,
                             const models::Tokenizer* tokenizer)
    : EngineFixture(options, tokenizer, kernels::CreateRefBackend()) {}

EngineFixture::EngineFixture(const EngineFixtureOptions& options,
                             const models::Tokenizer* tokenizer,
                             std::unique_ptr<kernels::Backend> backend)
    : backend_(std::move(backend)) {
  SetLogLevel(LogLevel::kWarning);  // preemptions are told at info
  policies_.Add(MakeRaggedPolicy(/*seed=*/7));
  policies_.Add(MakeTestAdaptive(options.shape.num_layers, options.shape.num_kv_heads));
  model_ = std::make_unique<FakeModel>(options.shape, *backend_);
  engine::KvCacheConfig cache_config;
  cache_config.num_layers = options.shape.num_layers;
  cache_config.hidden_size = model_->config().hidden_size;
  cache_config.attention_scale = 1.0f;
  cache_config.tsp_layer = options.tsp_layer;
  cache_config.num_pages = options.num_pages;
  cache_config.geometry = {.num_kv_heads = options.shape.num_kv_heads,
                           .group_size = options.shape.group_size,
                           .head_dim = options.shape.head_dim,
                           .dtype = kernels::KvDType::kF32};
  cache_config.keeps_replay = options.kv_overcommit > 1.0;
  auto cache = engine::KvCache::Create(cache_config, *backend_, policies_, clock_);
  HEADROOM_CHECK(cache.ok());
  cache_ = std::move(cache).value();
  engine::EngineConfig config;
  config.limits = options.limits;
  config.max_context_tokens = options.max_context_tokens;
  config.kv_overcommit = options.kv_overcommit;
  config.check_invariants = true;
  engine_ =
      std::make_unique<engine::Engine>(config, *model_, *cache_, policies_, tokenizer, &clock_);
}

std::vector<EngineEvent> EngineFixture::Step(std::vector<Command> commands) {
  std::vector<EngineEvent> events = engine_->Step(clock_.NowNs(), std::move(commands));
  for (const EngineEvent& event : events) {
    AddToOutcome(event.event, outcome(event.id, event.event.choice));
  }
  return events;
}

void EngineFixture::Submit(const Request& request) { Step({SubmitOf(request)}); }

void EngineFixture::RunToEnd() {
  while (engine_->HasWork()) {
    Step();
  }
}

const Outcome& EngineFixture::Run(const Request& request) {
  Submit(request);
  RunToEnd();
  return outcomes_[request.id];
}

void AddToOutcome(const RequestEvent& event, Outcome& outcome) {
  outcome.event_after_terminal |= outcome.num_terminal > 0;
  for (const engine::SampledToken& token : event.tokens) {
    outcome.tokens.push_back(token.token);
  }
  outcome.text += event.text;
  outcome.began |= event.kind == RequestEvent::Kind::kProgress;
  outcome.num_terminal += engine::IsTerminal(event.kind) ? 1 : 0;
  outcome.last = event;
}

Command SubmitOf(const Request& request) {
  return engine::SubmitCommand{.request = std::make_shared<const Request>(request)};
}

Request MakeRequest(engine::RequestId id, int32_t num_prompt, int32_t max_new_tokens,
                    uint64_t prompt_seed, int32_t vocab_size) {
  Request request;
  request.id = id;
  const Philox rng(prompt_seed);
  for (int32_t i = 0; i < num_prompt; ++i) {
    const uint32_t word = rng.Block(static_cast<uint64_t>(i))[0];
    request.prompt_ids.push_back(static_cast<int32_t>(word % static_cast<uint32_t>(vocab_size)));
  }
  request.content_end = num_prompt;
  request.sampling.temperature = 0.0f;
  request.stop.max_new_tokens = max_new_tokens;
  request.decode_text = false;
  request.kv.min_prompt = 0;
  request.kv.tsp_min_prompt = 0;
  return request;
}

}  // namespace headroom::testing
