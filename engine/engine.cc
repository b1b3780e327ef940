#include "engine/engine.h"

#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "engine/batch_builder.h"
#include "engine/capacity.h"
#include "engine/choice_sampler.h"
#include "engine/counting_kv_store.h"
#include "engine/sequence.h"
#include "engine/sequence_set.h"
#include "engine/step_planner.h"

namespace headroom::engine {
namespace {

// Weight of the newest measurement of a row's time.
constexpr double kRowTimeWeight = 0.25;

EngineConfig Resolve(EngineConfig config, const models::Model& model, const KvCache& cache) {
  const int64_t pool = cache.pool().num_pages();
  if (config.limits.num_pages <= 0 || config.limits.num_pages > pool) {
    config.limits.num_pages = pool;
  }
  HEADROOM_CHECK(config.kv_overcommit >= 1.0);
  config.limits.admission_pages =
      static_cast<int64_t>(config.kv_overcommit * static_cast<double>(config.limits.num_pages));
  const int32_t longest = model.config().max_position_embeddings;
  if (config.max_context_tokens <= 0 || config.max_context_tokens > longest) {
    config.max_context_tokens = longest;
  }
  HEADROOM_CHECK(config.limits.max_rows >= 1 && config.limits.max_running >= 1);
  HEADROOM_CHECK(config.limits.max_queued >= 1 && config.limits.min_chunk >= 1);
  return config;
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
        sampler(the_model.config().vocab_size),
        sequences(the_cache),
        planner(config.limits, shape, the_cache, sequences) {
    shape = {.kv = the_cache.shape(),
             .vocab_size = the_model.config().vocab_size,
             .max_context_tokens = config.max_context_tokens,
             .num_pages = config.limits.num_pages,
             .token_classes = tokenizer == nullptr ? nullptr : ClassifyVocabulary(*tokenizer)};
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
  ChoiceSampler sampler;
  BatchBuilder builder;
  SequenceSet sequences;
  StepPlanner planner;

  double row_ns = 0.0;  // measured time of a row through all layers; 0: not measured yet
  EngineStats stats;

  // Reused by steps.
  std::vector<StepRows> step_rows;
  std::vector<float> logits;  // [logit rows, vocab]

  void Apply(SubmitCommand& command);
  void Apply(CancelCommand& command);
  void Apply(FailAllCommand& command);

  // One step.
  void Forward();
  void AfterForward(const StepRows& rows);
  void AfterChunk(const StepRows& rows);
  void FinishPrefill(Sequence& sequence);
  void TracePrefill(Sequence& sequence);
  void SampleNext(Sequence& sequence, Choice& choice, std::span<const float> row);
  void MeasureRow(int64_t elapsed_ns, int64_t layer_rows);
  void UpdateStats();
  Status CheckInvariants() const;
};

void Engine::Impl::Apply(SubmitCommand& command) {
  HEADROOM_CHECK(command.request != nullptr);
  const StatusOr<Capacity> capacity = CapacityOf(*command.request, shape, policies);
  Status status = capacity.status();
  const size_t num_waiting = sequences.waiting().size();
  if (status.ok() && num_waiting >= static_cast<size_t>(config.limits.max_queued)) {
    status = Unavailable("the queue is full: {} requests wait", num_waiting);
  }
  const models::Tokenizer* decoder = command.request->decode_text ? tokenizer : nullptr;
  Sequence& submitted = sequences.Add(std::make_unique<Sequence>(
      std::move(command.request), capacity.ok() ? *capacity : Capacity(), decoder));
  if (!status.ok()) {
    sequences.Fail(submitted, status);
  }
}

void Engine::Impl::Apply(CancelCommand& command) {
  Sequence* sequence = sequences.Find(command.id);
  if (sequence == nullptr) {
    return;
  }
  const RequestEvent cancelled = MakeEvent(RequestEvent::Kind::kCancelled);
  if (command.choice < 0) {
    sequences.EndAll(*sequence, cancelled);
    return;
  }
  const auto index = static_cast<size_t>(command.choice);
  if (index < sequence->choices.size() && !sequence->choices[index].ended) {
    sequences.End(*sequence, sequence->choices[index], cancelled);
  }
}

void Engine::Impl::Apply(FailAllCommand& command) {
  HEADROOM_CHECK(!command.status.ok());
  sequences.FailEverything(command.status);
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
    has_prefill |= rows.choice == nullptr;
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

void Engine::Impl::AfterForward(const StepRows& rows) {
  Sequence& sequence = *rows.sequence;
  if (rows.choice == nullptr) {
    AfterChunk(rows);
  }
  if (rows.replays) {
    stats.recomputed_tokens += rows.num_rows;
  }
  if (rows.logit_index < 0) {
    return;
  }
  const auto vocab = static_cast<size_t>(shape.vocab_size);
  const auto row =
      std::span<const float>(logits).subspan(static_cast<size_t>(rows.logit_index) * vocab, vocab);
  if (rows.choice != nullptr) {
    SampleNext(sequence, *rows.choice, row);
    return;
  }
  // All choices draw their first token from the prompt's last row, but for those that have it from
  // before a preemption.
  for (Choice& choice : sequence.choices) {
    if (!choice.ended && choice.generated.empty()) {
      SampleNext(sequence, choice, row);
    }
  }
}

void Engine::Impl::AfterChunk(const StepRows& rows) {
  Sequence& sequence = *rows.sequence;
  sequence.phase_rows_done += rows.num_rows;
  sequence.rows_done += rows.num_rows;
  if (sequence.phase == 0) {
    const int64_t read = std::max(sequence.prompt_rows_read, sequence.phase_rows_done);
    const int64_t num_new = read - std::exchange(sequence.prompt_rows_read, read);
    stats.prompt_tokens += num_new;
    stats.recomputed_tokens += rows.num_rows - num_new;
  }
  if (rows.segment.ends_phase) {
    cache.FinishPhase(sequence.handle, sequence.phase);
    ++sequence.phase;
    sequence.phase_rows_done = 0;
    if (sequence.phase == static_cast<int32_t>(cache.phases(sequence.handle).size())) {
      FinishPrefill(sequence);
    }
  }
  if (sequence.choices.front().ended || sequence.rows_done <= sequence.rows_told) {
    return;  // progress is told to the first choice, and once
  }
  sequence.rows_told = sequence.rows_done;
  RequestEvent event = MakeEvent(RequestEvent::Kind::kProgress);
  event.rows_done = sequence.rows_done;
  event.rows_total = std::max(sequence.rows_done, sequence.capacity.rows_total);
  sequences.Emit(sequence, 0, std::move(event));
}

void Engine::Impl::FinishPrefill(Sequence& sequence) {
  const bool is_new = sequence.choices.end() ==
                      std::find_if(sequence.choices.begin(), sequence.choices.end(),
                                   [](const Choice& choice) { return choice.replay != nullptr; });
  if (is_new) {
    sequence.receipt = cache.receipt(sequence.handle);
    stats.entries_kept += sequence.receipt.entries;
    stats.entries_dropped += sequence.receipt.entries_full - sequence.receipt.entries;
    if (sequence.request->trace_kv) {
      TracePrefill(sequence);
    }
  }
  // What was kept is known now: the reservation becomes exact, and never larger.
  const KvFootprint steady =
      cache.SteadyFootprint(sequence.handle, sequence.request->stop.max_new_tokens);
  Capacity& capacity = sequence.capacity;
  capacity.shared_pages = steady.shared_pages;
  capacity.choice_pages = steady.steady_pages - steady.shared_pages;
  HEADROOM_CHECK(capacity.SteadyPages(sequence.num_live) <= capacity.peak_pages);
  sequence.state = Sequence::State::kDecode;
  int32_t num_forks = 0;
  for (Choice& choice : sequence.choices) {
    if (choice.ended) {
      continue;
    }
    choice.handle = ++num_forks < sequence.num_live ? cache.Fork(sequence.handle)
                                                    : std::exchange(sequence.handle, -1);
    if (choice.replay != nullptr) {
      cache.ReplayDecode(choice.handle, std::exchange(choice.replay, nullptr));
    }
  }
}

void Engine::Impl::TracePrefill(Sequence& sequence) {
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

void Engine::Impl::SampleNext(Sequence& sequence, Choice& choice, std::span<const float> row) {
  RequestEvent event = sampler.Next(sequence.request->stop, row, choice);
  ++stats.generated_tokens;
  if (event.kind != RequestEvent::Kind::kFinished) {
    sequences.Emit(sequence, choice.index, std::move(event));
    return;
  }
  event.kv_trace = sequence.trace;
  sequences.End(sequence, choice, std::move(event));
}

void Engine::Impl::UpdateStats() {
  sequences.DropEnded();
  ++stats.steps;
  stats.waiting = static_cast<int64_t>(sequences.waiting().size());
  stats.running = static_cast<int64_t>(sequences.running().size());
  stats.pages_used = cache.pool().num_pages() - cache.pool().num_free();
  stats.pages_reserved = 0;
  stats.pages_steady = 0;
  stats.running_choices = 0;
  for (const std::unique_ptr<Sequence>& sequence : sequences.running()) {
    stats.pages_reserved += sequence->reserved_pages();
    stats.pages_steady += sequence->capacity.SteadyPages(sequence->num_live);
    stats.running_choices += sequence->num_live;
  }
}

Status Engine::Impl::CheckInvariants() const {
  HEADROOM_RETURN_IF_ERROR(cache.CheckInvariants());
  if (sequences.num_open() != stats.waiting + stats.running) {
    return Internal("{} requests are open, but {} wait and {} run", sequences.num_open(),
                    stats.waiting, stats.running);
  }
  int64_t held_pages = 0;
  size_t num_handles = 0;
  for (const std::unique_ptr<Sequence>& sequence : sequences.running()) {
    const std::vector<int32_t> handles = sequence->handles();
    const int64_t held = cache.pages_held(handles);
    if (held > sequence->reserved_pages()) {
      return Internal("request {} holds {} pages, {} are reserved", sequence->request->id, held,
                      sequence->reserved_pages());
    }
    held_pages += held;
    num_handles += handles.size();
  }
  if (static_cast<size_t>(cache.num_sequences()) != num_handles) {
    return Internal("{} sequences hold pages, but {} run", cache.num_sequences(), num_handles);
  }
  if (held_pages != stats.pages_used) {
    return Internal("sequences hold {} pages, the pool misses {}", held_pages, stats.pages_used);
  }
  if (stats.pages_reserved > config.limits.admission_pages) {
    return Internal("{} pages are reserved of {}", stats.pages_reserved,
                    config.limits.admission_pages);
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

PromptInfo Engine::DescribePrompt(const Request& request) const {
  return PromptInfoOf(request, impl_->shape.token_classes);
}

std::vector<EngineEvent> Engine::Step(int64_t now_ns, std::vector<Command> commands) {
  for (Command& command : commands) {
    std::visit([&](auto& typed) { impl_->Apply(typed); }, command);
  }
  impl_->sequences.ExpireDeadlines(now_ns);

  impl_->stats.preemptions += impl_->planner.Prepare(impl_->row_ns, impl_->step_rows);
  // SCHED-1: what runs or could run gets at least one row.
  HEADROOM_CHECK(!impl_->step_rows.empty() || !HasWork());
  if (!impl_->step_rows.empty()) {
    impl_->Forward();
    for (const StepRows& rows : impl_->step_rows) {
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
  return impl_->sequences.TakeEvents();
}

bool Engine::HasWork() const { return !impl_->sequences.empty(); }

int64_t Engine::NextDeadlineNs() const { return impl_->sequences.NextDeadlineNs(); }

const EngineStats& Engine::stats() const { return impl_->stats; }

}  // namespace headroom::engine
