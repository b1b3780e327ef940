#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <map>
#include <utility>

namespace headroom::server {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;
using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;

const Histogram::BucketBoundaries kLatencySeconds = {0.001, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16,
                                                     0.32,  0.64,  1.28, 2.56, 5.12, 10.24, 20.48,
                                                     40.96, 81.92, 163.84, 640, 2560};
const Histogram::BucketBoundaries kStepSeconds = {0.0005, 0.001, 0.002, 0.005, 0.01, 0.02,
                                                  0.05,   0.1,   0.2,   0.5,   1,    2,   5};
const Histogram::BucketBoundaries kRatios = {0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0};

}  // namespace

struct ServerMetrics::Impl {
  explicit Impl(Runtime& runtime_in)
      : runtime(runtime_in),
        labels({{"model_name", runtime_in.model_name()}}),
        before(runtime_in.engine().stats()) {}

  Gauge& MakeGauge(const char* name, const char* help) {
    return BuildGauge().Name(name).Help(help).Register(registry).Add(labels);
  }
  Counter& MakeCounter(const char* name, const char* help) {
    return BuildCounter().Name(name).Help(help).Register(registry).Add(labels);
  }
  Histogram& MakeHistogram(const char* name, const char* help,
                           const Histogram::BucketBoundaries& buckets) {
    return BuildHistogram().Name(name).Help(help).Register(registry).Add(labels, buckets);
  }
  Counter& Finished(const char* reason) {
    prometheus::Labels with_reason = labels;
    with_reason["reason"] = reason;
    return finished.Add(with_reason);
  }
  void Refresh();
  void ObserveTerminal(const engine::RequestEvent& event);
  void ObserveHeads(const engine::KvReceipt& receipt);
  void AddHeadTypes();

  Runtime& runtime;
  prometheus::Labels labels;
  const engine::EngineStats before;  // the self-test's own work, which is nobody's request
  prometheus::Registry registry;

  Gauge& waiting = MakeGauge("headroom_requests_waiting", "Requests in the queue");
  Gauge& running = MakeGauge("headroom_requests_running", "Choices that hold KV pages");
  Gauge& pages_total = MakeGauge("headroom_kv_cache_pages", "Pages of the KV pool");
  Gauge& pages_used = MakeGauge("headroom_kv_cache_pages_used", "Pages in use");
  Gauge& pages_reserved =
      MakeGauge("headroom_kv_cache_pages_reserved",
                "Pages promised: prefills at their peak, then what was kept and its growth");
  Gauge& pages_steady = MakeGauge("headroom_kv_cache_pages_reserved_steady",
                                  "Pages promised once all running prefills have ended");
  Gauge& usage = MakeGauge("headroom_kv_cache_usage_ratio", "Pages in use, of all");
  Gauge& connections = MakeGauge("headroom_http_connections", "Open connections");
  Gauge& heartbeat_age =
      MakeGauge("headroom_engine_heartbeat_age_seconds", "Since the engine's last turn");
  Counter& prompt_tokens = MakeCounter("headroom_prompt_tokens_total", "Prompt tokens read");
  Counter& generated = MakeCounter("headroom_generation_tokens_total", "Tokens generated");
  Counter& entries_kept =
      MakeCounter("headroom_kv_entries_kept_total", "Prompt (token, layer, KV head) entries kept");
  Counter& entries_dropped =
      MakeCounter("headroom_kv_entries_dropped_total", "Prompt entries evicted after prefill");
  Counter& bytes_saved = MakeCounter("headroom_kv_bytes_saved_total", "Bytes of evicted entries");
  Counter& unknown_fields =
      MakeCounter("headroom_unknown_request_fields_total", "Ignored fields of request bodies");
  Counter& preemptions =
      MakeCounter("headroom_preemptions_total", "Requests put back into the queue for their pages");
  Counter& recomputed = MakeCounter("headroom_recomputed_tokens_total",
                                    "Prompt and answer tokens run again after a preemption");
  Counter& steps = MakeCounter("headroom_engine_steps_total", "Engine steps");
  Histogram& step_seconds =
      MakeHistogram("headroom_engine_step_seconds", "Time of one engine step", kStepSeconds);
  Histogram& ttft = MakeHistogram("headroom_time_to_first_token_seconds",
                                  "From the parsed request to its first token", kLatencySeconds);
  Histogram& itl = MakeHistogram("headroom_inter_token_latency_seconds", "Between two tokens",
                                 kLatencySeconds);
  Histogram& e2e = MakeHistogram("headroom_e2e_request_latency_seconds",
                                 "From the parsed request to its end", kLatencySeconds);
  Histogram& retention =
      MakeHistogram("headroom_kv_retention_ratio", "Entries kept, of all", kRatios);
  Histogram& compress = MakeHistogram("headroom_kv_compress_seconds",
                                      "Scoring, selection and compaction", kStepSeconds);
  Family<Counter>& finished = BuildCounter()
                                  .Name("headroom_requests_finished_total")
                                  .Help("Ended requests by reason")
                                  .Register(registry);
  // Per head type; only with a head map.
  Family<Counter>& head_kept = BuildCounter()
                                   .Name("headroom_kv_head_type_entries_kept_total")
                                   .Help("Prompt entries that adaptive kept, by type of head")
                                   .Register(registry);
  Family<Counter>& head_full = BuildCounter()
                                   .Name("headroom_kv_head_type_entries_total")
                                   .Help("Prompt entries that adaptive saw, by type of head")
                                   .Register(registry);
  std::array<Counter*, engine::kNumHeadTypes> kept_by_type = {};
  std::array<Counter*, engine::kNumHeadTypes> full_by_type = {};
  Counter& head_checks =
      MakeCounter("headroom_kv_head_check_escalations_total", "Heads that kv_head_check gave more");
  Family<Counter>& responses = BuildCounter()
                                   .Name("headroom_http_responses_total")
                                   .Help("Answers by endpoint and status")
                                   .Register(registry);
};

// How many heads each type has, once; and the counters of what they keep.
void ServerMetrics::Impl::AddHeadTypes() {
  if (runtime.head_map() == nullptr) {
    return;
  }
  auto& heads = BuildGauge()
                    .Name("headroom_kv_heads")
                    .Help("KV heads of the model by their type in the head map")
                    .Register(registry);
  const auto counts = engine::CountHeadTypes(*runtime.head_map()->map);
  for (size_t i = 0; i < counts.size(); ++i) {
    prometheus::Labels with_type = labels;
    with_type["type"] = engine::HeadTypeName(static_cast<engine::HeadType>(i));
    heads.Add(with_type).Set(static_cast<double>(counts[i]));
    kept_by_type[i] = &head_kept.Add(with_type);
    full_by_type[i] = &head_full.Add(with_type);
  }
}

void ServerMetrics::Impl::ObserveHeads(const engine::KvReceipt& receipt) {
  const LoadedHeadMap* head_map = runtime.head_map();
  if (head_map == nullptr || receipt.policy != "adaptive" ||
      receipt.head_entries.size() != head_map->map->heads.size()) {
    return;
  }
  for (size_t i = 0; i < receipt.head_entries.size(); ++i) {
    const auto type = static_cast<size_t>(head_map->map->heads[i].type);
    kept_by_type[type]->Increment(receipt.head_entries[i]);
    full_by_type[type]->Increment(static_cast<double>(receipt.prompt_tokens));
  }
  head_checks.Increment(receipt.escalated_heads);
}

ServerMetrics::ServerMetrics(Runtime& runtime) : impl_(std::make_unique<Impl>(runtime)) {
  impl_->AddHeadTypes();
}
ServerMetrics::~ServerMetrics() = default;

void ServerMetrics::Impl::ObserveTerminal(const engine::RequestEvent& event) {
  using Kind = engine::RequestEvent::Kind;
  if (event.kind == Kind::kCancelled) {
    Finished("cancelled").Increment();
    return;
  }
  if (event.kind == Kind::kFailed) {
    const bool timed_out = event.status.code() == StatusCode::kDeadlineExceeded;
    Finished(timed_out ? "timeout" : "error").Increment();
    return;
  }
  if (event.kind != Kind::kFinished) {
    return;
  }
  const bool stopped = event.finish_reason == engine::FinishReason::kStop;
  Finished(stopped ? "stop" : "length").Increment();
  // Choices share one prefill and one receipt.
  if (event.choice == 0 && event.receipt.entries_full > 0) {
    retention.Observe(static_cast<double>(event.receipt.entries) /
                      static_cast<double>(event.receipt.entries_full));
    ObserveHeads(event.receipt);
    bytes_saved.Increment(static_cast<double>(event.receipt.bytes_full - event.receipt.bytes));
    if (event.receipt.entries < event.receipt.entries_full) {
      compress.Observe(event.receipt.compress_ms / 1000.0);
    }
  }
}

void ServerMetrics::ObserveStep(const std::vector<engine::EngineEvent>& events, int64_t step_ns) {
  impl_->steps.Increment();
  impl_->step_seconds.Observe(static_cast<double>(step_ns) * 1e-9);
  for (const engine::EngineEvent& event : events) {
    impl_->ObserveTerminal(event.event);
  }
}

void ServerMetrics::CountResponse(const char* endpoint, int status) {
  prometheus::Labels labels = impl_->labels;
  labels["endpoint"] = endpoint;
  labels["status"] = fmt::format("{}", status);
  impl_->responses.Add(labels).Increment();
}

void ServerMetrics::ObserveTimeToFirstToken(double seconds) { impl_->ttft.Observe(seconds); }
void ServerMetrics::ObserveInterTokenLatency(double seconds) { impl_->itl.Observe(seconds); }
void ServerMetrics::ObserveEndToEnd(double seconds) { impl_->e2e.Observe(seconds); }
void ServerMetrics::CountUnknownFields(int64_t count) {
  impl_->unknown_fields.Increment(static_cast<double>(count));
}
void ServerMetrics::SetConnections(int64_t count) {
  impl_->connections.Set(static_cast<double>(count));
}

namespace {

// Counters that the engine keeps itself are raised to its value.
void RaiseTo(Counter* counter, int64_t value) {
  const double behind = static_cast<double>(value) - counter->Value();
  if (behind > 0) {
    counter->Increment(behind);
  }
}

}  // namespace

void ServerMetrics::Impl::Refresh() {
  const engine::EngineStats stats = runtime.loop().stats();
  waiting.Set(static_cast<double>(stats.waiting));
  running.Set(static_cast<double>(stats.running_choices));
  pages_total.Set(static_cast<double>(stats.pages_total));
  pages_used.Set(static_cast<double>(stats.pages_used));
  pages_reserved.Set(static_cast<double>(stats.pages_reserved));
  pages_steady.Set(static_cast<double>(stats.pages_steady));
  usage.Set(stats.pages_total == 0 ? 0.0
                                   : static_cast<double>(stats.pages_used) /
                                         static_cast<double>(stats.pages_total));
  const int64_t age_ns = runtime.clock().NowNs() - runtime.loop().heartbeat_ns();
  heartbeat_age.Set(static_cast<double>(std::max<int64_t>(age_ns, 0)) * 1e-9);
  RaiseTo(&prompt_tokens, stats.prompt_tokens - before.prompt_tokens);
  RaiseTo(&generated, stats.generated_tokens - before.generated_tokens);
  RaiseTo(&entries_kept, stats.entries_kept - before.entries_kept);
  RaiseTo(&entries_dropped, stats.entries_dropped - before.entries_dropped);
  RaiseTo(&preemptions, stats.preemptions);
  RaiseTo(&recomputed, stats.recomputed_tokens);
}

std::string ServerMetrics::Text() const {
  impl_->Refresh();
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

}  // namespace headroom::server
