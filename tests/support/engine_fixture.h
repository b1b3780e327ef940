// An engine over the reference backend, driven step by step, and what its events add up to.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/kv/kv_cache.h"
#include "engine/kv/policy.h"
#include "kernels/ops.h"
#include "models/model.h"
#include "tests/support/fake_clock.h"
#include "tests/support/fake_model.h"

namespace headroom::testing {

struct EngineFixtureOptions {
  FakeModelShape shape;
  int32_t tsp_layer = 1;
  int32_t num_pages = 1024;
  engine::SchedulerLimits limits;
  int32_t max_context_tokens = 0;
  double kv_overcommit = 1.0;
};

// Everything that one choice of a request was told.
struct Outcome {
  std::vector<int32_t> tokens;
  std::string text;
  bool began = false;  // some of its prompt was read
  int32_t num_terminal = 0;
  bool event_after_terminal = false;
  engine::RequestEvent last;  // the terminal event once num_terminal is 1
};

// The backend, policies (with `ragged`), cache, FakeModel and engine of one test.
class EngineFixture {
 public:
  explicit EngineFixture(const EngineFixtureOptions& options,
                         const models::Tokenizer* tokenizer = nullptr);
  // On another backend than ref.
  EngineFixture(const EngineFixtureOptions& options, const models::Tokenizer* tokenizer,
                std::unique_ptr<kernels::Backend> backend);

  // One step with these commands; sorts the events into outcomes().
  std::vector<engine::EngineEvent> Step(std::vector<engine::Command> commands = {});
  void Submit(const engine::Request& request);  // Step with that command
  // Steps until nothing is left.
  void RunToEnd();
  // Submits and runs to the end.
  const Outcome& Run(const engine::Request& request);

  // Of first choices, and of any choice.
  std::map<engine::RequestId, Outcome>& outcomes() { return outcomes_; }
  Outcome& outcome(engine::RequestId id, int32_t choice) {
    return choice == 0 ? outcomes_[id] : further_outcomes_[{id, choice}];
  }
  engine::Engine& engine() { return *engine_; }
  engine::KvCache& cache() { return *cache_; }
  FakeModel& model() { return *model_; }
  kernels::Backend& backend() { return *backend_; }
  FakeClock& clock() { return clock_; }

 private:
  FakeClock clock_;
  std::unique_ptr<kernels::Backend> backend_;
  engine::KvPolicyRegistry policies_;
  std::unique_ptr<engine::KvCache> cache_;
  std::unique_ptr<FakeModel> model_;
  std::unique_ptr<engine::Engine> engine_;
  std::map<engine::RequestId, Outcome> outcomes_;
  std::map<std::pair<engine::RequestId, int32_t>, Outcome> further_outcomes_;
};

// Adds one event to what its request was told.
void AddToOutcome(const engine::RequestEvent& event, Outcome& outcome);

engine::Command SubmitOf(const engine::Request& request);

// A greedy request for ids only; prompt tokens are seeded.
engine::Request MakeRequest(engine::RequestId id, int32_t num_prompt, int32_t max_new_tokens,
                            uint64_t prompt_seed = 1, int32_t vocab_size = 64);

}  // namespace headroom::testing
