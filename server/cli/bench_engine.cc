#include "server/cli/bench_engine.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/philox.h"
#include "server/budget_resolver.h"

namespace headroom::server {
namespace {

using engine::RequestEvent;

constexpr uint64_t kPromptSeed = 20260101;

// Tokens that each sequence of a decode measurement may generate. The last prompt of a batch may
// finish prefill a while after the first: a surplus keeps all of them decoding while the clock
// runs.
int32_t DecodeRoom(const Runtime& runtime, int64_t depth, int64_t decode_tokens, int64_t batch) {
  const int64_t room = runtime.max_context() - std::max<int64_t>(depth, 1);
  const int64_t surplus = batch == 1 ? 2 : decode_tokens * 8 + 4096;
  return static_cast<int32_t>(std::min(decode_tokens + surplus, room));
}

// One measurement drives Engine::Step itself: no threads, no queues in the way.
class Measurement {
 public:
  Measurement(Runtime& runtime, const engine::KvPolicySpec& spec, const Clock& clock)
      : runtime_(runtime), spec_(spec), clock_(clock) {}

  // Nanoseconds from submission to the first token of one prompt.
  StatusOr<int64_t> PrefillNs(int64_t prompt_tokens) {
    HEADROOM_RETURN_IF_ERROR(Submit(prompt_tokens, /*max_new_tokens=*/1));
    const int64_t start = clock_.NowNs();
    HEADROOM_RETURN_IF_ERROR(StepUntil([this] { return num_finished_ == 1; }));
    return clock_.NowNs() - start;
  }

  // Nanoseconds for `decode_tokens` tokens of each of `batch` sequences behind `depth` tokens.
  StatusOr<int64_t> DecodeNs(int64_t depth, int64_t batch, int64_t decode_tokens) {
    for (int64_t i = 0; i < batch; ++i) {
      HEADROOM_RETURN_IF_ERROR(
          Submit(std::max<int64_t>(depth, 1), DecodeRoom(runtime_, depth, decode_tokens, batch)));
    }
    HEADROOM_RETURN_IF_ERROR(
        StepUntil([&] { return static_cast<int64_t>(tokens_.size()) == batch; }));
    if (num_finished_ > 0 || runtime_.engine().stats().running != batch) {
      return Internal("--depth {}, --batch {}: {} sequences decode together, wanted {}", depth,
                      batch, runtime_.engine().stats().running, batch);
    }
    pages_ = runtime_.engine().stats().pages_used / batch;
    const int64_t target = total_tokens_ + decode_tokens * batch;
    const int64_t start = clock_.NowNs();
    HEADROOM_RETURN_IF_ERROR(StepUntil([&] { return total_tokens_ >= target; }));
    const int64_t elapsed = clock_.NowNs() - start;
    for (int64_t id : submitted_) {
      commands_.push_back(engine::CancelCommand{static_cast<engine::RequestId>(id)});
    }
    HEADROOM_RETURN_IF_ERROR(StepUntil([this] { return !runtime_.engine().HasWork(); }));
    return elapsed;
  }

  int64_t pages() const { return pages_; }

 private:
  Status Submit(int64_t prompt_tokens, int32_t max_new_tokens) {
    auto request = std::make_shared<engine::Request>();
    request->id = ++next_id_;
    const Philox random(kPromptSeed, request->id);
    for (int64_t i = 0; i < prompt_tokens; ++i) {
      request->prompt_ids.push_back(
          static_cast<int32_t>(random.Block(static_cast<uint64_t>(i))[0] %
                               static_cast<uint32_t>(runtime_.config().vocab_size)));
    }
    request->content_end = static_cast<int32_t>(prompt_tokens);
    request->sampling.temperature = 0.0f;
    request->stop.max_new_tokens = max_new_tokens;
    request->kv = spec_;
    request->decode_text = false;
    HEADROOM_RETURN_IF_ERROR(runtime_.engine().CheckFits(*request));
    submitted_.push_back(static_cast<int64_t>(request->id));
    commands_.push_back(engine::SubmitCommand{std::move(request), clock_.NowNs()});
    return OkStatus();
  }

  template <typename Done>
  Status StepUntil(const Done& done) {
    while (!done()) {
      std::vector<engine::Command> commands = std::move(commands_);
      commands_.clear();
      if (commands.empty() && !runtime_.engine().HasWork()) {
        return Internal("the engine stopped before the measurement was complete");
      }
      for (const engine::EngineEvent& event :
           runtime_.engine().Step(clock_.NowNs(), std::move(commands))) {
        if (event.event.kind == RequestEvent::Kind::kFailed) {
          return event.event.status;
        }
        num_finished_ += event.event.kind == RequestEvent::Kind::kFinished ? 1 : 0;
        if (!event.event.tokens.empty()) {
          if (std::find(tokens_.begin(), tokens_.end(), event.id) == tokens_.end()) {
            tokens_.push_back(event.id);
          }
          total_tokens_ += static_cast<int64_t>(event.event.tokens.size());
        }
        if (event.event.kind == RequestEvent::Kind::kFinished) {
          pages_ = event.event.receipt.pages;
        }
      }
    }
    return OkStatus();
  }

  Runtime& runtime_;
  const engine::KvPolicySpec& spec_;
  const Clock& clock_;
  std::vector<engine::Command> commands_;
  std::vector<int64_t> submitted_;
  std::vector<engine::RequestId> tokens_;  // sequences that gave a token
  engine::RequestId next_id_ = 1;
  int64_t total_tokens_ = 0;
  int64_t num_finished_ = 0;
  int64_t pages_ = 0;
};

// Median and best rate of several runs of `run`, the first of which only warms up.
template <typename Run>
Status Repeat(int64_t repeat, int64_t tokens, const Run& run, BenchRow* row) {
  std::vector<double> rates;
  for (int64_t i = 0; i <= repeat; ++i) {
    HEADROOM_ASSIGN_OR_RETURN(const int64_t ns, run());
    if (i > 0) {
      rates.push_back(static_cast<double>(tokens) / (static_cast<double>(ns) * 1e-9));
    }
  }
  std::sort(rates.begin(), rates.end());
  row->tokens = tokens;
  row->tokens_per_s_median = rates[rates.size() / 2];
  row->tokens_per_s_best = rates.back();
  return OkStatus();
}

// The budget on prompts of `tokens` tokens; kv_strict refuses as it does for a request.
StatusOr<engine::KvPolicySpec> SpecFor(const BenchEngineOptions& options, const Runtime& runtime,
                                       int64_t tokens) {
  auto budget =
      ResolveBudget(options.budget, {}, runtime.policies(), tokens, runtime.head_map_info());
  if (const auto* error = std::get_if<ApiError>(&budget)) {
    return InvalidArgument("{}", error->message);
  }
  return std::get<ResolvedBudget>(budget).spec;
}

// Whether `batch` sequences can decode `decode_tokens` behind `depth` tokens at the same time.
Status CheckDecodeFits(const BenchEngineOptions& options, Runtime& runtime,
                       const engine::KvPolicySpec& spec, int64_t depth, int64_t batch) {
  const int64_t most = runtime.max_context() - options.decode_tokens - 1;
  if (depth > most) {
    return InvalidArgument("--depth: got {}, wanted at most {}: the context is {}, --decode {}",
                           depth, most, runtime.max_context(), options.decode_tokens);
  }
  if (batch > options.runtime.max_running) {
    return InvalidArgument("--batch: got {}, wanted at most --max-running {}", batch,
                           options.runtime.max_running);
  }
  engine::PromptInfo prompt;
  prompt.num_tokens = static_cast<int32_t>(std::max<int64_t>(depth, 1));
  prompt.content_end = prompt.num_tokens;
  const engine::KvFootprint footprint =
      runtime.policies()
          .Find(spec.policy)
          ->Footprint(spec, runtime.shape(), prompt,
                      DecodeRoom(runtime, depth, options.decode_tokens, batch));
  const int64_t each = std::max(footprint.prefill_peak_pages, footprint.steady_pages);
  const int64_t pool = runtime.cache().pool().num_pages();
  if (each * batch > pool) {
    return InvalidArgument(
        "--batch: got {} behind --depth {}, wanted at most {}: each needs {} of the pool's {} KV "
        "pages (--kv-memory-mib)",
        batch, depth, pool / each, each, pool);
  }
  return OkStatus();
}

Status MeasurePrefill(const BenchEngineOptions& options, Runtime& runtime, const Clock& clock,
                      int64_t tokens, BenchReport* report) {
  if (tokens >= runtime.max_context()) {
    return InvalidArgument("--prefill: got {}, wanted below the context of {}", tokens,
                           runtime.max_context());
  }
  HEADROOM_ASSIGN_OR_RETURN(const engine::KvPolicySpec spec, SpecFor(options, runtime, tokens));
  report->policy = spec.policy;
  BenchRow row;
  row.test = "prefill";
  row.prompt_tokens = tokens;
  row.batch = 1;
  row.retention_ppm = engine::AppliedRetentionPpm(spec, tokens);
  row.tsp_ppm = engine::AppliedTspPpm(spec, tokens);
  HEADROOM_RETURN_IF_ERROR(Repeat(
      options.repeat, tokens,
      [&]() -> StatusOr<int64_t> {
        Measurement measurement(runtime, spec, clock);
        auto ns = measurement.PrefillNs(tokens);
        row.kv_pages = measurement.pages();
        return ns;
      },
      &row));
  report->rows.push_back(row);
  return OkStatus();
}

Status MeasureDecode(const BenchEngineOptions& options, Runtime& runtime, const Clock& clock,
                     int64_t depth, int64_t batch, BenchReport* report) {
  const int64_t tokens = std::max<int64_t>(depth, 1);
  HEADROOM_ASSIGN_OR_RETURN(const engine::KvPolicySpec spec, SpecFor(options, runtime, tokens));
  report->policy = spec.policy;
  if (const Status fits = CheckDecodeFits(options, runtime, spec, depth, batch); !fits.ok()) {
    if (!options.skip_what_does_not_fit) {
      return fits;
    }
    report->skipped.push_back(StatusMessage(fits));
    return OkStatus();
  }
  BenchRow row;
  row.test = "decode";
  row.prompt_tokens = depth;
  row.batch = batch;
  row.retention_ppm = engine::AppliedRetentionPpm(spec, tokens);
  row.tsp_ppm = engine::AppliedTspPpm(spec, tokens);
  HEADROOM_RETURN_IF_ERROR(Repeat(
      options.repeat, options.decode_tokens * batch,
      [&]() -> StatusOr<int64_t> {
        Measurement measurement(runtime, spec, clock);
        auto ns = measurement.DecodeNs(depth, batch, options.decode_tokens);
        row.kv_pages = measurement.pages();
        return ns;
      },
      &row));
  report->rows.push_back(row);
  return OkStatus();
}

}  // namespace

StatusOr<BenchReport> RunBenchEngine(const BenchEngineOptions& options, const Clock& clock) {
  HEADROOM_ASSIGN_OR_RETURN(auto runtime, Runtime::Create(options.runtime, clock));
  BenchReport report;
  report.model = runtime->model_name();
  report.backend = runtime->backend().name();
  report.isa = runtime->backend().isa();
  report.threads = options.runtime.threads;
  for (int64_t tokens : options.prefill_tokens) {
    HEADROOM_RETURN_IF_ERROR(MeasurePrefill(options, *runtime, clock, tokens, &report));
  }
  for (int64_t depth : options.depths) {
    for (int64_t batch : options.batches) {
      HEADROOM_RETURN_IF_ERROR(MeasureDecode(options, *runtime, clock, depth, batch, &report));
    }
  }
  return report;
}

}  // namespace headroom::server
