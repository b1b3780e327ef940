// A prefill of `adaptive` on given scores, by the executor that the cache uses: what each head
// keeps, and what goes on above the TSP layer. For tests of a model of 6 layers with 3 KV heads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/kv/head_map.h"
#include "engine/kv/policies/policies.h"
#include "engine/kv/prefill_plan.h"
#include "engine/kv/retention.h"
#include "tests/support/test_map.h"

namespace headroom::testing {

using Slots = std::vector<int32_t>;
using KeptSets = std::vector<std::vector<Slots>>;  // [layer][kv head], prompt positions

inline constexpr engine::KvModelShape kAdaptiveShape = {
    .num_layers = 6, .num_kv_heads = 3, .tsp_layer = 2};
inline constexpr int32_t kAdaptiveTokens = 200;

std::unique_ptr<engine::KvPolicy> MakePolicy(
    engine::HeadMap map, const std::string& prefer = "balanced",
    const engine::AdaptiveSettings& settings = kShortSettings);

// Of random classes: a tenth special, so that mandatory tokens take small budgets; or a fourth
// punctuation and the rest content, as prose is.
engine::PromptInfo MakePrompt(int32_t num_tokens, uint64_t seed);
engine::PromptInfo MakeProse(int32_t num_tokens, uint64_t seed);

// Scores of every (layer, head, position), drawn once: what a layer scores of them is the columns
// of the rows that it sees.
class Scores {
 public:
  Scores(uint64_t seed, int32_t num_tokens);
  float at(int32_t layer, int32_t head, int32_t position) const;
  engine::LayerScores Of(int32_t layer, const Slots& rows, int32_t window_rows) const;

 private:
  int32_t num_tokens_;
  std::vector<float> values_;
};

Slots AllRows(int32_t num_tokens);
std::vector<engine::TokenClass> ClassesOf(const engine::PromptInfo& prompt, const Slots& rows);

struct Prefilled {
  engine::PrefillPlan plan;
  Slots propagated;  // rows above T
  KeptSets kept;

  const Slots& rows(int32_t layer) const {
    return plan.layer_phases[static_cast<size_t>(layer)] == 0 ? all : propagated;
  }
  Slots all;
};
Prefilled RunPolicy(const engine::KvPolicy& policy, const engine::KvPolicySpec& spec,
                    const engine::PromptInfo& prompt, const Scores& scores);

int64_t NumEntries(const KeptSets& kept);
bool IsSubset(const Slots& smaller, const Slots& larger);

}  // namespace headroom::testing
