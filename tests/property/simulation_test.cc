// Seeded schedules of submissions, cancellations, deadlines and failures against the whole engine,
// with a model whose tokens depend on every KV slot that it reads. A request that survives gets the
// tokens that it gets alone; one that does not, a prefix of them.
//
// HEADROOM_SIMULATION_SEEDS sets how many schedules run (10,000), HEADROOM_SIMULATION_FIRST the
// first seed: to repeat a failure, set both.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "base/philox.h"
#include "tests/support/engine_fixture.h"

namespace headroom::engine {
namespace {

using testing::EngineFixture;
using testing::EngineFixtureOptions;
using testing::MakeRequest;
using testing::Outcome;
using testing::SubmitOf;
using Kind = RequestEvent::Kind;

constexpr int32_t kNumShapes = 3;
constexpr int32_t kContentsPerShape = 150;

// Seeded draws, in order.
class Draws {
 public:
  explicit Draws(uint64_t seed, uint64_t stream = 0) : philox_(seed, stream) {}
  // Uniform in [low, high].
  int32_t Between(int32_t low, int32_t high) {
    const uint32_t word = philox_.Block(counter_++)[0];
    return low + static_cast<int32_t>(word % static_cast<uint32_t>(high - low + 1));
  }
  bool Percent(int32_t percent) { return Between(1, 100) <= percent; }
  template <typename T, size_t kSize>
  T Pick(const T (&values)[kSize]) {
    return values[static_cast<size_t>(Between(0, static_cast<int32_t>(kSize) - 1))];
  }

 private:
  Philox philox_;
  uint64_t counter_ = 0;
};

testing::FakeModelShape ShapeOf(int32_t shape_index) {
  testing::FakeModelShape shape;
  shape.num_layers = 3 + shape_index % 2;
  shape.num_kv_heads = 2 + shape_index / 2;
  shape.group_size = 1 + shape_index % 3;
  shape.head_dim = shape_index == 1 ? 4 : 2;
  shape.vocab_size = 32;
  return shape;
}

int32_t TspLayerOf(int32_t shape_index) { return shape_index == 0 ? 0 : 1; }

KvPolicySpec DrawSpec(Draws& draws, int32_t num_prompt) {
  KvPolicySpec spec = MakeRequest(0, 1, 1).kv;
  spec.policy = std::string(
      draws.Pick({"full", "streaming", "h2o", "scissorhands", "snapkv", "adakv", "adakv",
                  "pyramidinfer", "pyramidinfer", "gemfilter", "gemfilter", "fastkv", "fastkv",
                  "fastgen", "random", "ragged", "ragged", "adaptive", "adaptive"}));
  spec.window = draws.Between(1, 9);
  spec.window_raw = draws.Percent(30);
  spec.sink_tokens = draws.Between(0, 5);
  spec.pool = draws.Percent(50) ? kernels::PoolKind::kMax : kernels::PoolKind::kAvg;
  spec.pool_width = draws.Pick({1, 3, 7});
  spec.min_prompt = draws.Percent(20) ? num_prompt + draws.Between(-1, 1) : 0;
  const bool selects = spec.policy == "full" || spec.policy == "fastkv" ||
                       spec.policy == "ragged" || spec.policy == "adaptive";
  if (spec.policy != "full" && spec.policy != "ragged" && spec.policy != "fastgen") {
    spec.retention_ppm = draws.Between(10'000, 1'000'000);
    if (draws.Percent(20)) {
      spec.retention_tokens = draws.Between(1, 30);
    }
  }
  spec.recovery_ppm = draws.Between(50'000, 999'999);
  spec.options.alpha_ppm = draws.Between(0, 1'000'000);
  spec.options.recent_share_ppm = draws.Between(0, 1'000'000);
  spec.options.count_normalised = draws.Percent(50);
  spec.options.fraction_ppm = draws.Between(1, 400'000);
  spec.options.all_rows = draws.Percent(50);
  spec.options.filter_layer = draws.Between(-1, 2);
  spec.options.flat = draws.Percent(30);
  if (selects && draws.Percent(60)) {
    spec.tsp_ppm = draws.Between(10'000, 1'000'000);
  }
  if (spec.policy == "adaptive") {
    spec.scope = draws.Percent(50) ? KvScope::kModel : KvScope::kLayer;
    spec.mode = draws.Pick({KvMode::kBudget, KvMode::kBudget, KvMode::kRecovery, KvMode::kBoth});
    spec.recovery_ppm = 950'000;  // the map's
    spec.head_check = draws.Percent(40);
  }
  const bool typed_by_scores = spec.policy == "adaptive" || spec.policy == "fastgen";
  if (spec.policy == "streaming" || (typed_by_scores && draws.Percent(50))) {
    spec.decode = KvDecode::kTyped;
  }
  return spec;
}

// One of a fixed population of requests, so that solo runs can be cached; the id is not set.
Request DrawContent(int32_t shape_index, int32_t content) {
  Draws draws(static_cast<uint64_t>(content), static_cast<uint64_t>(shape_index) + 1000);
  const int32_t num_prompt = draws.Percent(20) ? draws.Between(1, 4) : draws.Between(5, 48);
  const int32_t num_new = draws.Percent(15) ? draws.Between(20, 45) : draws.Between(1, 12);
  Request request = MakeRequest(0, num_prompt, num_new, static_cast<uint64_t>(content) + 500,
                                ShapeOf(shape_index).vocab_size);
  request.content_end = std::max(1, num_prompt - draws.Between(0, 3));
  request.kv = DrawSpec(draws, num_prompt);
  request.trace_kv = draws.Percent(30);
  if (draws.Percent(40)) {
    request.sampling.temperature = 1.0f;
    request.sampling.seed = static_cast<uint64_t>(content);
    request.sampling.presence_penalty = draws.Percent(50) ? 1.0f : 0.0f;
    request.sampling.top_k = draws.Between(0, 8);
  }
  request.num_choices = draws.Percent(50) ? 1 : draws.Between(1, 3);
  if (draws.Percent(30)) {
    request.stop.eos_token_ids = {draws.Between(0, 31), draws.Between(0, 31)};
  }
  return request;
}

struct Solo {
  Request request;
  std::vector<Outcome> choices;
};

// What every request of the population gets alone, in a roomy pool and in one chunk; each choice
// from a prefill of its own.
const Solo& SoloOf(int32_t shape_index, int32_t content) {
  static std::map<std::pair<int32_t, int32_t>, Solo> cache;
  const auto [found, is_new] = cache.try_emplace({shape_index, content});
  if (is_new) {
    EngineFixtureOptions options;
    options.shape = ShapeOf(shape_index);
    options.tsp_layer = TspLayerOf(shape_index);
    EngineFixture fixture(options);
    found->second.request = DrawContent(shape_index, content);
    for (int32_t choice = 0; choice < found->second.request.num_choices; ++choice) {
      Request request = found->second.request;
      request.id = static_cast<RequestId>(choice) + 1;
      request.num_choices = 1;
      request.sampling.choice = static_cast<uint32_t>(choice);
      found->second.choices.push_back(fixture.Run(request));
      const RequestEvent& last = found->second.choices.back().last;
      EXPECT_EQ(last.kind, Kind::kFinished) << "shape " << shape_index << " content " << content
                                            << ": " << StatusMessage(last.status);
    }
  }
  return found->second;
}

// What the schedules met, to show that they go everywhere.
struct Coverage {
  int64_t steps = 0;
  int64_t submitted = 0;
  int64_t finished = 0;
  int64_t choices_finished = 0;   // of requests with several
  int64_t cancelled_choices = 0;  // whose siblings went on
  int64_t cancelled_waiting = 0;
  int64_t cancelled_after_prompt_began = 0;
  int64_t cancelled_while_decoding = 0;
  int64_t deadlines = 0;
  int64_t queue_deadlines = 0;
  int64_t queue_full = 0;
  int64_t never_fit = 0;
  int64_t failed_all = 0;
  int64_t waited = 0;  // steps in which somebody waited
  int64_t preemptions = 0;
};

// A broken CHECK aborts; the seed must still be seen.
volatile sig_atomic_t current_seed = 0;
extern "C" void PrintSeed(int) {
  char line[64];
  const int size =
      std::snprintf(line, sizeof(line), "aborted in schedule %d\n", static_cast<int>(current_seed));
  [[maybe_unused]] const auto written = write(STDERR_FILENO, line, static_cast<size_t>(size));
}

class Schedule {
 public:
  Schedule(uint64_t seed, Coverage& coverage)
      : draws_(seed),
        coverage_(coverage),
        shape_index_(draws_.Between(0, kNumShapes - 1)),
        fixture_(DrawOptions()) {}

  void Run() {
    const int32_t num_actions = draws_.Between(3, 30);
    for (int32_t i = 0; i < num_actions; ++i) {
      Step(DrawCommands());
    }
    // Drain: nothing new comes, everything ends in a bounded number of steps.
    int64_t steps_left = MostStepsLeft();
    while (fixture_.engine().HasWork()) {
      ASSERT_GE(--steps_left, 0) << "the engine does not come to an end";
      Step({});
    }
    CheckOutcomes();
    EXPECT_EQ(fixture_.cache().pool().num_free(), fixture_.cache().pool().num_pages());
    EXPECT_EQ(fixture_.cache().num_sequences(), 0);
    EXPECT_EQ(fixture_.engine().stats().pages_reserved, 0);
    coverage_.preemptions += fixture_.engine().stats().preemptions;
    // Nobody is preempted twice.
    EXPECT_LE(fixture_.engine().stats().preemptions, static_cast<int64_t>(contents_.size()));
  }

 private:
  EngineFixtureOptions DrawOptions() {
    EngineFixtureOptions options;
    options.shape = ShapeOf(shape_index_);
    options.tsp_layer = TspLayerOf(shape_index_);
    const int32_t pages_per_block = options.shape.num_layers * options.shape.num_kv_heads;
    options.num_pages = pages_per_block * draws_.Between(2, 16) + draws_.Between(0, 3);
    options.limits.max_rows = draws_.Pick({1, 2, 7, 16, 33, 64, 200});
    options.limits.min_chunk = draws_.Pick({1, 4, 16});
    options.limits.max_running = draws_.Between(1, 8);
    options.limits.max_queued = draws_.Between(1, 10);
    options.limits.step_time_ns = draws_.Between(1, 400);
    options.kv_overcommit = draws_.Percent(50) ? 1.5 : 1.0;
    return options;
  }

  std::vector<Command> DrawCommands() {
    fixture_.clock().SetTick(draws_.Between(0, 20));
    fixture_.clock().Advance(draws_.Between(0, 100));
    std::vector<Command> commands;
    while (draws_.Percent(45)) {
      commands.push_back(DrawSubmit());
    }
    while (draws_.Percent(15)) {
      // Unknown, finished and repeated ids too.
      const auto id =
          static_cast<RequestId>(draws_.Between(0, static_cast<int32_t>(contents_.size()) + 1));
      // One choice, perhaps one that does not exist, or all of them.
      const int32_t choice = draws_.Percent(50) ? draws_.Between(0, 3) : -1;
      commands.push_back(CancelCommand{.id = id, .choice = choice});
      cancels_.insert({id, choice});
    }
    if (draws_.Percent(1)) {
      commands.push_back(FailAllCommand{Internal("simulated")});
      ++coverage_.failed_all;
    }
    return commands;
  }

  Command DrawSubmit() {
    const int32_t content = draws_.Between(0, kContentsPerShape - 1);
    contents_.push_back(content);
    Request request = SoloOf(shape_index_, content).request;
    request.id = contents_.size();
    const int64_t now_ns = fixture_.clock().NowNs();
    if (draws_.Percent(10)) {
      request.deadline_ns = now_ns + draws_.Between(0, 1500);
    }
    if (draws_.Percent(15)) {
      request.queue_deadline_ns = now_ns + draws_.Between(0, 800);
    }
    ++coverage_.submitted;
    return SubmitOf(request);
  }

  int64_t MostStepsLeft() const {
    int64_t steps = 10;
    for (const int32_t content : contents_) {
      const Request& request = SoloOf(shape_index_, content).request;
      // At most one phase a layer and the first, one row a step; twice, after a preemption.
      const int64_t most_phases = ShapeOf(shape_index_).num_layers + 1;
      steps += 2 * (most_phases * static_cast<int64_t>(request.prompt_ids.size()) +
                    int64_t{request.stop.max_new_tokens} * request.num_choices);
    }
    return steps;
  }

  void Step(std::vector<Command> commands) {
    fixture_.Step(std::move(commands));
    const EngineStats& stats = fixture_.engine().stats();
    ++coverage_.steps;
    coverage_.waited += stats.waiting > 0 ? 1 : 0;
    EXPECT_EQ(static_cast<int64_t>(contents_.size()), NumEnded() + stats.waiting + stats.running);
  }

  int32_t NumChoices(RequestId id) const {
    return SoloOf(shape_index_, contents_[id - 1]).request.num_choices;
  }

  int64_t NumEnded() {
    int64_t count = 0;
    for (RequestId id = 1; id <= contents_.size(); ++id) {
      bool ended = true;
      for (int32_t choice = 0; choice < NumChoices(id); ++choice) {
        ended &= fixture_.outcome(id, choice).num_terminal > 0;
      }
      count += ended ? 1 : 0;
    }
    return count;
  }

  void CheckOutcomes() {
    for (RequestId id = 1; id <= contents_.size(); ++id) {
      SCOPED_TRACE(::testing::Message() << "request " << id << " content " << contents_[id - 1]);
      CheckRequest(id);
    }
  }

  void CheckRequest(RequestId id) {
    const Solo& solo = SoloOf(shape_index_, contents_[id - 1]);
    const Outcome& first = fixture_.outcome(id, 0);
    for (int32_t choice = 0; choice < NumChoices(id); ++choice) {
      SCOPED_TRACE(choice);
      const Outcome& outcome = fixture_.outcome(id, choice);
      EXPECT_EQ(outcome.num_terminal, 1);
      EXPECT_FALSE(outcome.event_after_terminal);
      CheckAgainstSolo(outcome, solo.choices[static_cast<size_t>(choice)]);
      if (outcome.last.kind == Kind::kCancelled) {
        EXPECT_TRUE(cancels_.contains({id, -1}) || cancels_.contains({id, choice}));
        coverage_.cancelled_choices += first.last.kind == Kind::kFinished ? 1 : 0;
      }
      if (outcome.last.kind == Kind::kFinished) {
        coverage_.choices_finished += choice > 0 ? 1 : 0;
        if (first.last.kind == Kind::kFinished) {
          EXPECT_EQ(outcome.last.receipt.compress_ms, first.last.receipt.compress_ms);
        }
      }
    }
    Count(first);
  }

  static void CheckAgainstSolo(const Outcome& outcome, const Outcome& solo) {
    EXPECT_EQ(outcome.last.usage.completion_tokens, static_cast<int64_t>(outcome.tokens.size()));
    ASSERT_LE(outcome.tokens.size(), solo.tokens.size());
    EXPECT_TRUE(std::equal(outcome.tokens.begin(), outcome.tokens.end(), solo.tokens.begin()))
        << "the tokens differ from those of the same request alone";
    if (outcome.last.kind != Kind::kFinished) {
      return;
    }
    EXPECT_EQ(outcome.tokens.size(), solo.tokens.size());
    EXPECT_EQ(outcome.last.finish_reason, solo.last.finish_reason);
    EXPECT_EQ(outcome.last.receipt.entries, solo.last.receipt.entries);
    EXPECT_EQ(outcome.last.receipt.pages, solo.last.receipt.pages);
    EXPECT_EQ(outcome.last.receipt.propagated_tokens, solo.last.receipt.propagated_tokens);
    ASSERT_EQ(outcome.last.kv_trace.has_value(), solo.last.kv_trace.has_value());
    if (outcome.last.kv_trace) {
      EXPECT_EQ(outcome.last.kv_trace->kept, solo.last.kv_trace->kept);
    }
  }

  void Count(const Outcome& outcome) {
    const StatusCode code = outcome.last.status.code();
    switch (outcome.last.kind) {
      case Kind::kFinished:
        ++coverage_.finished;
        break;
      case Kind::kCancelled:
        coverage_.cancelled_while_decoding += outcome.tokens.empty() ? 0 : 1;
        ++(outcome.began ? coverage_.cancelled_after_prompt_began : coverage_.cancelled_waiting);
        break;
      default:
        if (code == StatusCode::kDeadlineExceeded) {
          ++(outcome.last.expired_in_queue ? coverage_.queue_deadlines : coverage_.deadlines);
        }
        coverage_.queue_full += code == StatusCode::kUnavailable ? 1 : 0;
        coverage_.never_fit += code == StatusCode::kResourceExhausted ? 1 : 0;
        break;
    }
  }

  Draws draws_;
  Coverage& coverage_;
  const int32_t shape_index_;
  EngineFixture fixture_;
  std::vector<int32_t> contents_;  // of request id i + 1
  std::set<std::pair<RequestId, int32_t>> cancels_;
};

int64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoll(value);
}

TEST(SimulationTest, EveryScheduleKeepsTheInvariantsAndEveryRequestItsOwnTokens) {
  const int64_t first = FromEnvironment("HEADROOM_SIMULATION_FIRST", 1);
  const int64_t count = FromEnvironment("HEADROOM_SIMULATION_SEEDS", 10'000);
  const auto previous = std::signal(SIGABRT, PrintSeed);
  Coverage coverage;
  for (int64_t seed = first; seed < first + count; ++seed) {
    current_seed = static_cast<sig_atomic_t>(seed);
    Schedule(static_cast<uint64_t>(seed), coverage).Run();
    if (HasFailure()) {
      std::signal(SIGABRT, previous);
      FAIL() << "schedule " << seed << " (HEADROOM_SIMULATION_FIRST=" << seed
             << " HEADROOM_SIMULATION_SEEDS=1 repeats it)";
    }
  }
  std::signal(SIGABRT, previous);
  std::printf(
      "%lld schedules, %lld steps, %lld requests: %lld finished, cancelled %lld waiting, %lld "
      "begun, %lld of them decoding; %lld deadlines, %lld queue deadlines, %lld queue full, %lld "
      "never fit, %lld times all failed; somebody waited in %lld steps; %lld further choices "
      "finished, %lld cancelled alone; %lld preemptions\n",
      static_cast<long long>(count), static_cast<long long>(coverage.steps),
      static_cast<long long>(coverage.submitted), static_cast<long long>(coverage.finished),
      static_cast<long long>(coverage.cancelled_waiting),
      static_cast<long long>(coverage.cancelled_after_prompt_began),
      static_cast<long long>(coverage.cancelled_while_decoding),
      static_cast<long long>(coverage.deadlines), static_cast<long long>(coverage.queue_deadlines),
      static_cast<long long>(coverage.queue_full), static_cast<long long>(coverage.never_fit),
      static_cast<long long>(coverage.failed_all), static_cast<long long>(coverage.waited),
      static_cast<long long>(coverage.choices_finished),
      static_cast<long long>(coverage.cancelled_choices),
      static_cast<long long>(coverage.preemptions));
  if (count >= 1000) {
    // A simulation that meets none of these proves nothing of them.
    for (const int64_t met :
         {coverage.finished, coverage.cancelled_waiting, coverage.cancelled_after_prompt_began,
          coverage.cancelled_while_decoding, coverage.deadlines, coverage.queue_deadlines,
          coverage.queue_full, coverage.never_fit, coverage.failed_all, coverage.waited,
          coverage.choices_finished, coverage.cancelled_choices, coverage.preemptions}) {
      EXPECT_GE(met, 10);
    }
  }
}

}  // namespace
}  // namespace headroom::engine
