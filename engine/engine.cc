#include "engine/engine.h"

#include <algorithm>
#include <deque>
#include <unordered_map>

#include "base/check.h"
#include "base/log.h"
#include "engine/batch_builder.h"
#include "engine/capacity.h"
#include "engine/counting_kv_store.h"
#include "engine/sequence.h"

namespace headroom::engine {
namespace {

// Weight of the newest measurement of a row's time.
constexpr double kRowTimeWeight = 0.25;

EngineConfig Resolve(EngineConfig config, const models::Model& model, const KvCache& cache) {
  const int64_t pool = cache.pool().num_pages();
  if (config.limits.num_pages <= 0 || config.limits.num_pages > pool) {
    config.limits.num_pages = pool;
  }
  const int32_t longest = model.config().max_position_embeddings;
  if (config.max_context_tokens <= 0 || config.max_context_tokens > longest) {
    config.max_context_tokens = longest;
  }
  HEADROOM_CHECK(config.limits.max_rows >= 1 && config.limits.max_running >= 1);
  HEADROOM_CHECK(config.limits.max_queued >= 1 && config.limits.min_chunk >= 1);
  return config;
}

RequestEvent MakeEvent(RequestEvent::Kind kind) {
  RequestEvent event;
  event.kind = kind;
  return event;
}

bool CountsGenerated(const SamplingParams& params) {
  return params.presence_penalty != 0.0f || params.frequency_penalty != 0.0f ||
         params.repetition_penalty != 1.0f;
}

}  // namespace

struct Engine::Impl {
  Impl(const EngineConfig& given, models::Model& the_model, KvCache& the_cache,
       const KvPolicyRegistry& the_policies, const models::Tokenizer* the_tokenizer,
       const Clock* the_clock)
      : config(Resolve(given, the_model, the_cache)),
        model(the_model),
        cache(the_cache),
        policies(the_policies),
        tokenizer(the_tokenizer),
        clock(the_clock),
        counting_store(the_cache),
        scheduler(config.limits),
        sampler(the_model.config().vocab_size) {
    shape = {.kv = the_cache.shape(),
             .vocab_size = the_model.config().vocab_size,
             .max_context_tokens = config.max_context_tokens,
             .num_pages = config.limits.num_pages};
    HEADROOM_CHECK(shape.kv.num_layers == the_model.config().num_hidden_layers);
    stats.pages_total = config.limits.num_pages;
  }

  // Constant after construction.
  const EngineConfig config;
  models::Model& model;
  KvCache& cache;
  const KvPolicyRegistry& policies;
  const models::Tokenizer* const tokenizer;
  const Clock* const clock;
  EngineShape shape;

  CountingKvStore counting_store;
  const Scheduler scheduler;
  Sampler sampler;
  BatchBuilder builder;

  // A request is in exactly one of the two lists, and in `by_id`, until its terminal event.
  std::deque<std::unique_ptr<Sequence>> waiting;   // in order of arrival
  std::vector<std::unique_ptr<Sequence>> running;  // in order of admission; null: ended this step
  std::unordered_map<RequestId, Sequence*> by_id;

  double row_ns = 0.0;  // measured time of a row through all layers; 0: not measured yet
  EngineStats stats;
  std::vector<EngineEvent> events;  // of this step

  // Reused by steps.
  std::vector<StepRows> step_rows;
  std::vector<float> logits;      // [logit rows, vocab]
  std::vector<uint64_t> allowed;  // [ceil(vocab / 64)]
  std::vector<WaitingView> waiting_view;
  std::vector<RunningView> running_view;

  // Commands and deadlines.
  void Apply(SubmitCommand& command);
  void Apply(CancelCommand& command);
  void Apply(FailAllCommand& command);
  void ExpireDeadlines(int64_t now_ns);

  // The one way to end: pages go back, then the terminal event. The sequence is gone afterwards.
  void End(Sequence& sequence, RequestEvent event);
  void Fail(Sequence& sequence, const Status& status);
  void Emit(RequestId id, RequestEvent event) { events.push_back({id, std::move(event)}); }

  // One step.
  StepPlan Plan();
  void Admit(const std::vector<RequestId>& ids);
  void CollectRows(const StepPlan& plan);
  void Forward();
  void AfterForward(StepRows& rows);
  void AfterChunk(const StepRows& rows);
  void FinishPrefill(Sequence& sequence);
  void SampleNext(Sequence& sequence, std::span<const float> row);
  std::span<const uint64_t> AllowedTokens(const Sequence& sequence);
  void Deliver(Sequence& sequence, SampledToken token);
  void MeasureRow(int64_t elapsed_ns, int64_t layer_rows);
  void UpdateStats();
  Status CheckInvariants() const;
};

void Engine::Impl::Apply(SubmitCommand& command) {
  HEADROOM_CHECK(command.request != nullptr);
  const RequestId id = command.request->id;
  HEADROOM_CHECK(!by_id.contains(id));
  const StatusOr<Capacity> capacity = CapacityOf(*command.request, shape, policies);
  Status status = capacity.status();
  if (status.ok() && static_cast<int32_t>(waiting.size()) >= config.limits.max_queued) {
    status = Unavailable("the queue is full: {} requests wait", waiting.size());
  }
  const models::Tokenizer* decoder = command.request->decode_text ? tokenizer : nullptr;
  auto sequence = std::make_unique<Sequence>(std::move(command.request),
                                             capacity.ok() ? *capacity : Capacity(), decoder);
  Sequence& submitted = *sequence;
  submitted.receipt.policy = submitted.request->kv.policy;
  by_id.emplace(id, &submitted);
  waiting.push_back(std::move(sequence));
  if (!status.ok()) {
    Fail(submitted, status);
  }
}

void Engine::Impl::Apply(CancelCommand& command) {
  const auto found = by_id.find(command.id);
  if (found != by_id.end()) {
    End(*found->second, MakeEvent(RequestEvent::Kind::kCancelled));
  }
}

void Engine::Impl::Apply(FailAllCommand& command) {
  HEADROOM_CHECK(!command.status.ok());
  for (const std::unique_ptr<Sequence>& sequence : running) {
    if (sequence != nullptr) {
      Fail(*sequence, command.status);
    }
  }
  while (!waiting.empty()) {
    Fail(*waiting.front(), command.status);
  }
}

void Engine::Impl::ExpireDeadlines(int64_t now_ns) {
  std::vector<RequestId> expired;
  for (const auto& [id, sequence] : by_id) {
    const Request& request = *sequence->request;
    const bool waits = sequence->state == Sequence::State::kWaiting;
    if ((request.deadline_ns != 0 && now_ns >= request.deadline_ns) ||
        (waits && request.queue_deadline_ns != 0 && now_ns >= request.queue_deadline_ns)) {
      expired.push_back(id);
    }
  }
  // By id, so that the events do not depend on a hash table's order.
  std::sort(expired.begin(), expired.end());
  for (const RequestId id : expired) {
    Sequence& sequence = *by_id.at(id);
    const int64_t deadline_ns = sequence.request->deadline_ns;
    const bool in_queue = deadline_ns == 0 || now_ns < deadline_ns;
    RequestEvent event = MakeEvent(RequestEvent::Kind::kFailed);
    event.expired_in_queue = in_queue;
    event.status = MakeStatus(StatusCode::kDeadlineExceeded,
                              in_queue ? "the request waited longer than its queue limit"
                                       : "the request's deadline has passed");
    End(sequence, std::move(event));
  }
}

void Engine::Impl::End(Sequence& sequence, RequestEvent event) {
  const RequestId id = sequence.request->id;
  if (sequence.handle >= 0) {
    cache.Close(sequence.handle);
  }
  event.usage = {.prompt_tokens = static_cast<int64_t>(sequence.request->prompt_ids.size()),
                 .completion_tokens = sequence.num_generated};
  event.receipt = std::move(sequence.receipt);
  by_id.erase(id);
  const auto is_it = [&](const std::unique_ptr<Sequence>& other) {
    return other.get() == &sequence;
  };
  if (sequence.state == Sequence::State::kWaiting) {
    waiting.erase(std::find_if(waiting.begin(), waiting.end(), is_it));
  } else {
    std::find_if(running.begin(), running.end(), is_it)->reset();  // erased at the end of the step
  }
  Emit(id, std::move(event));
}

void Engine::Impl::Fail(Sequence& sequence, const Status& status) {
  RequestEvent event = MakeEvent(RequestEvent::Kind::kFailed);
  event.status = status;
  End(sequence, std::move(event));
}

StepPlan Engine::Impl::Plan() {
  std::erase(running, nullptr);
  waiting_view.clear();
  for (const std::unique_ptr<Sequence>& sequence : waiting) {
    waiting_view.push_back(
        {.id = sequence->request->id,
         .peak_pages = sequence->capacity.peak_pages,
         .phase_rows_left = static_cast<int64_t>(sequence->request->prompt_ids.size()),
         .num_layers_of_phase = NumLayersOf(sequence->capacity.first_phase)});
  }
  running_view.clear();
  for (const std::unique_ptr<Sequence>& sequence : running) {
    RunningView view = {.id = sequence->request->id,
                        .reserved_pages = sequence->reserved_pages(),
                        .decoding = sequence->state == Sequence::State::kDecode};
    if (!view.decoding) {
      const auto phase = static_cast<size_t>(sequence->phase);
      view.phase = sequence->phase;
      view.phase_rows_left =
          static_cast<int64_t>(cache.phase_rows(sequence->handle, sequence->phase).size()) -
          sequence->phase_rows_done;
      view.num_layers_of_phase = NumLayersOf(cache.phases(sequence->handle)[phase]);
    }
    running_view.push_back(view);
  }
  return scheduler.Plan({.waiting = waiting_view,
                         .running = running_view,
                         .row_ns = row_ns,
                         .num_layers = shape.kv.num_layers});
}

void Engine::Impl::Admit(const std::vector<RequestId>& ids) {
  for (const RequestId id : ids) {
    HEADROOM_CHECK(!waiting.empty() && waiting.front()->request->id == id);
    std::unique_ptr<Sequence> sequence = std::move(waiting.front());
    waiting.pop_front();
    const Request& request = *sequence->request;
    sequence->handle = cache.Open(request.kv, PromptInfoOf(request));
    sequence->state = Sequence::State::kPrefill;
    if (request.sampling.repetition_penalty != 1.0f) {
      sequence->history.AddPrompt(request.prompt_ids);
    }
    running.push_back(std::move(sequence));
  }
}

void Engine::Impl::CollectRows(const StepPlan& plan) {
  step_rows.clear();
  for (const PlannedRows& planned : plan.decode) {
    Sequence& sequence = *by_id.at(planned.id);
    cache.PrepareDecode(sequence.handle);
    step_rows.push_back({.sequence = &sequence, .num_rows = planned.num_rows});
  }
  for (const PlannedRows& planned : plan.prefill) {
    step_rows.push_back({.sequence = by_id.at(planned.id), .num_rows = planned.num_rows});
  }
}

void Engine::Impl::Forward() {
  models::ForwardBatch& batch = builder.Build(shape.kv.num_layers, cache, step_rows);
  logits.resize(batch.logit_rows.size() * static_cast<size_t>(shape.vocab_size));
  batch.logits = logits.data();
  int64_t layer_rows = 0;
  bool has_prefill = false;
  for (const StepRows& rows : step_rows) {
    layer_rows +=
        static_cast<int64_t>(rows.num_rows) * (rows.segment.layer_end - rows.segment.layer_begin);
    has_prefill |= rows.sequence->state == Sequence::State::kPrefill;
  }
  const int64_t start_ns = clock == nullptr ? 0 : clock->NowNs();
  model.Forward(batch, counting_store);
  // A step of decode rows alone says nothing of what a prompt row costs: it reads every weight for
  // a handful of rows.
  if (clock != nullptr && has_prefill && layer_rows > 0) {
    MeasureRow(clock->NowNs() - start_ns, layer_rows);
  }
  stats.layer_rows += layer_rows;
  stats.attended_slots = counting_store.attended_slots();
}

void Engine::Impl::MeasureRow(int64_t elapsed_ns, int64_t layer_rows) {
  const double measured =
      static_cast<double>(elapsed_ns) * shape.kv.num_layers / static_cast<double>(layer_rows);
  row_ns = row_ns == 0.0 ? measured : row_ns + kRowTimeWeight * (measured - row_ns);
}

void Engine::Impl::AfterForward(StepRows& rows) {
  Sequence& sequence = *rows.sequence;
  if (sequence.state == Sequence::State::kPrefill) {
    AfterChunk(rows);
  }
  if (rows.logit_index >= 0) {
    const auto vocab = static_cast<size_t>(shape.vocab_size);
    SampleNext(sequence, std::span<const float>(logits).subspan(
                             static_cast<size_t>(rows.logit_index) * vocab, vocab));
  }
}

void Engine::Impl::AfterChunk(const StepRows& rows) {
  Sequence& sequence = *rows.sequence;
  sequence.phase_rows_done += rows.num_rows;
  sequence.rows_done += rows.num_rows;
  if (sequence.phase == 0) {
    stats.prompt_tokens += rows.num_rows;
  }
  if (rows.segment.ends_phase) {
    cache.FinishPhase(sequence.handle, sequence.phase);
    ++sequence.phase;
    sequence.phase_rows_done = 0;
    if (sequence.phase == static_cast<int32_t>(cache.phases(sequence.handle).size())) {
      FinishPrefill(sequence);
    }
  }
  RequestEvent event = MakeEvent(RequestEvent::Kind::kProgress);
  event.rows_done = sequence.rows_done;
  event.rows_total = std::max(sequence.rows_done, sequence.capacity.rows_total);
  Emit(sequence.request->id, std::move(event));
}

void Engine::Impl::FinishPrefill(Sequence& sequence) {
  sequence.state = Sequence::State::kDecode;
  sequence.receipt = cache.receipt(sequence.handle);
  stats.entries_kept += sequence.receipt.entries;
  stats.entries_dropped += sequence.receipt.entries_full - sequence.receipt.entries;
  if (!sequence.request->trace_kv) {
    return;
  }
  KvTrace trace;
  trace.kept.resize(static_cast<size_t>(shape.kv.num_layers));
  for (int32_t layer = 0; layer < shape.kv.num_layers; ++layer) {
    for (int32_t head = 0; head < shape.kv.num_kv_heads; ++head) {
      trace.kept[static_cast<size_t>(layer)].push_back(
          cache.Snapshot(sequence.handle, layer, head).positions);
    }
  }
  sequence.trace = std::move(trace);
}

// Every token but those that would end the text too early; empty: all.
std::span<const uint64_t> Engine::Impl::AllowedTokens(const Sequence& sequence) {
  const StopCriteria& stop = sequence.request->stop;
  if (sequence.num_generated >= stop.min_new_tokens) {
    return {};
  }
  allowed.assign((static_cast<size_t>(shape.vocab_size) + 63) / 64, ~uint64_t{0});
  const auto forbid = [&](const std::vector<int32_t>& ids) {
    for (const int32_t id : ids) {
      if (id >= 0 && id < shape.vocab_size) {
        allowed[static_cast<size_t>(id) / 64] &= ~(uint64_t{1} << (id % 64));
      }
    }
  };
  forbid(stop.eos_token_ids);
  forbid(stop.stop_token_ids);
  return allowed;
}

void Engine::Impl::SampleNext(Sequence& sequence, std::span<const float> row) {
  const SamplingParams& params = sequence.request->sampling;
  SampledToken token =
      sampler.Sample(row, params, sequence.history, static_cast<uint64_t>(sequence.num_generated),
                     AllowedTokens(sequence));
  if (CountsGenerated(params)) {
    sequence.history.AddGenerated(token.token);
  }
  sequence.last_token = token.token;
  ++sequence.num_generated;
  ++stats.generated_tokens;
  Deliver(sequence, std::move(token));
}

void Engine::Impl::Deliver(Sequence& sequence, SampledToken token) {
  OutputAssembler::Result result = sequence.assembler.Add(token.token);
  RequestEvent event = MakeEvent(RequestEvent::Kind::kTokens);
  event.tokens.push_back(std::move(token));
  event.text = std::move(result.text);
  if (!result.finish) {
    Emit(sequence.request->id, std::move(event));
    return;
  }
  event.kind = RequestEvent::Kind::kFinished;
  event.finish_reason = *result.finish;
  event.stop_string = std::move(result.stop_string);
  event.stop_token = result.stop_token;
  event.kv_trace = std::move(sequence.trace);
  End(sequence, std::move(event));
}

void Engine::Impl::UpdateStats() {
  std::erase(running, nullptr);
  ++stats.steps;
  stats.waiting = static_cast<int64_t>(waiting.size());
  stats.running = static_cast<int64_t>(running.size());
  stats.pages_used = cache.pool().num_pages() - cache.pool().num_free();
  stats.pages_reserved = 0;
  for (const std::unique_ptr<Sequence>& sequence : running) {
    stats.pages_reserved += sequence->reserved_pages();
  }
}

Status Engine::Impl::CheckInvariants() const {
  HEADROOM_RETURN_IF_ERROR(cache.CheckInvariants());
  if (by_id.size() != waiting.size() + running.size()) {
    return Internal("{} requests are open, but {} wait and {} run", by_id.size(), waiting.size(),
                    running.size());
  }
  if (cache.num_sequences() != static_cast<int32_t>(running.size())) {
    return Internal("{} sequences hold pages, but {} run", cache.num_sequences(), running.size());
  }
  int64_t held_pages = 0;
  for (const std::unique_ptr<Sequence>& sequence : running) {
    const int64_t held = cache.pages_held(sequence->handle);
    if (held > sequence->reserved_pages()) {
      return Internal("request {} holds {} pages, {} are reserved", sequence->request->id, held,
                      sequence->reserved_pages());
    }
    held_pages += held;
  }
  if (held_pages != stats.pages_used) {
    return Internal("sequences hold {} pages, the pool misses {}", held_pages, stats.pages_used);
  }
  if (stats.pages_reserved > config.limits.num_pages) {
    return Internal("{} pages are reserved of {}", stats.pages_reserved, config.limits.num_pages);
  }
  return OkStatus();
}

Engine::Engine(const EngineConfig& config, models::Model& model, KvCache& cache,
               const KvPolicyRegistry& policies, const models::Tokenizer* tokenizer,
               const Clock* clock)
    : impl_(std::make_unique<Impl>(config, model, cache, policies, tokenizer, clock)) {}

Engine::~Engine() = default;

Status Engine::CheckFits(const Request& request) const {
  return CapacityOf(request, impl_->shape, impl_->policies).status();
}

std::vector<EngineEvent> Engine::Step(int64_t now_ns, std::vector<Command> commands) {
  impl_->events.clear();
  for (Command& command : commands) {
    std::visit([&](auto& typed) { impl_->Apply(typed); }, command);
  }
  impl_->ExpireDeadlines(now_ns);

  const StepPlan plan = impl_->Plan();
  impl_->Admit(plan.admit);
  impl_->CollectRows(plan);
  // SCHED-1: what runs or could run gets at least one row.
  HEADROOM_CHECK(!impl_->step_rows.empty() || !HasWork());
  if (!impl_->step_rows.empty()) {
    impl_->Forward();
    for (StepRows& rows : impl_->step_rows) {
      impl_->AfterForward(rows);
    }
  }
  impl_->UpdateStats();
  if (impl_->config.check_invariants) {
    const Status status = impl_->CheckInvariants();
    if (!status.ok()) {
      LogError("event=invariant_broken fault=\"{}\"", StatusMessage(status));
    }
    HEADROOM_CHECK(status.ok());
  }
  return std::move(impl_->events);
}

bool Engine::HasWork() const { return !impl_->waiting.empty() || !impl_->running.empty(); }

int64_t Engine::NextDeadlineNs() const {
  int64_t next = 0;
  const auto consider = [&](int64_t deadline_ns) {
    if (deadline_ns != 0 && (next == 0 || deadline_ns < next)) {
      next = deadline_ns;
    }
  };
  for (const auto& [id, sequence] : impl_->by_id) {
    consider(sequence->request->deadline_ns);
    if (sequence->state == Sequence::State::kWaiting) {
      consider(sequence->request->queue_deadline_ns);
    }
  }
  return next;
}

const EngineStats& Engine::stats() const { return impl_->stats; }

}  // namespace headroom::engine
