// The engine core: a pure state machine. Step(now, commands) -> events.
//
// Clock, model and backend are injected; tests run it without threads. One step takes the commands,
// plans (Scheduler), runs at most one forward pass, samples, and reports. A cancelled request is
// gone, pages included, within the step that takes the command. Engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "engine/engine_event.h"
#include "engine/kv/kv_cache.h"
#include "engine/request.h"
#include "engine/scheduler.h"
#include "models/model.h"
#include "models/tokenizer/tokenizer.h"

namespace headroom::engine {

struct EngineConfig {
  SchedulerLimits limits;          // num_pages 0: the whole pool
  int32_t max_context_tokens = 0;  // prompt + generated; at most the model's; 0: the model's
  // >= 1: reservations may add up to so many times the pool. Above 1 a cache with keeps_replay is
  // needed: when a step would run out of pages, the request that was admitted last is preempted.
  double kv_overcommit = 1.0;
  // Test hook: KvCache::CheckInvariants and the engine's own after every step (aborts on a fault).
  bool check_invariants = false;
};

struct SubmitCommand {
  std::shared_ptr<const Request> request;
  int64_t arrival_ns = 0;
};
struct CancelCommand {
  RequestId id = 0;
  int32_t choice = -1;  // -1: all that are left; the others go on
};
// Fails every request in flight with `status` (shutdown, second signal).
struct FailAllCommand {
  Status status;
};
using Command = std::variant<SubmitCommand, CancelCommand, FailAllCommand>;

// A snapshot for metrics, taken after a step.
struct EngineStats {
  int64_t steps = 0;
  int64_t waiting = 0;
  int64_t running = 0;
  int64_t running_choices = 0;  // of them, those that have not ended
  int64_t pages_total = 0;
  int64_t pages_used = 0;
  int64_t pages_reserved = 0;     // until prefills end their peak, then kept + growth
  int64_t pages_steady = 0;       // of pages_reserved, what is left once all prefills have ended
  int64_t preemptions = 0;        // since start
  int64_t recomputed_tokens = 0;  // rows of prompts and answers run again, since start
  int64_t prompt_tokens = 0;      // rows read of phase 0, since start
  int64_t generated_tokens = 0;   // since start
  int64_t entries_kept = 0;       // of finished prefills, since start
  int64_t entries_dropped = 0;
  // Work counters of the decoupling proof, since start.
  int64_t layer_rows = 0;  // (row, layer) pairs that ran whole; a kv_tail's extra layer does not
  int64_t attended_slots = 0;  // (row, slot) pairs, over layers and KV heads
};

class Engine {
 public:
  // All references outlive the engine; `tokenizer` may be null. `clock` measures forward passes, so
  // that step_time_ns can shrink chunks; null: it never does. What is computed does not depend on
  // it.
  Engine(const EngineConfig& config, models::Model& model, KvCache& cache,
         const KvPolicyRegistry& policies, const models::Tokenizer* tokenizer,
         const Clock* clock = nullptr);
  ~Engine();

  // Whether the request can ever run alone on an empty pool and within the context: OK,
  // InvalidArgument (no prompt, ids, policy settings), OutOfRange (context length; message has both
  // numbers) or ResourceExhausted (pool). Const data only: any thread.
  Status CheckFits(const Request& request) const;
  // The prompt as policies see it. Any thread.
  PromptInfo DescribePrompt(const Request& request) const;

  // Takes the commands in order, expires deadlines (`now_ns` on the clock of Request::deadline_ns),
  // then runs one plan. A submitted request that CheckFits refuses, or that finds max_queued
  // others waiting, fails at once.
  std::vector<EngineEvent> Step(int64_t now_ns, std::vector<Command> commands);

  // Whether Step would do something without new commands.
  bool HasWork() const;
  // The next instant at which a deadline expires; 0: none.
  int64_t NextDeadlineNs() const;
  const EngineStats& stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headroom::engine
