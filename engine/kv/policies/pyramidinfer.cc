// pyramidinfer: deeper layers keep less, and rows that a layer does not keep stop there: they run
// in no later layer [PyramidInfer, 2405.12532].
//
// Layer l keeps b * (1 + a * cos(pi * l / (L - 1))) entries of every KV head, b = floor(rho * N)
// and a = min(0.75, (N - b) / b): b on average over the layers, exactly (layers l and L - 1 - l are
// rounded as a pair), all of them at rho = 1. The set is one for all KV heads of a layer: window
// scores summed over the heads. From layer floor(L / 4) on a layer's rows drop to what it keeps;
// below it all rows run.
//
// Deviations from the paper and its code (mutonix/pyramidinfer):
// - the schedule above in place of a decay per model with a hand-set minimum;
// - scores are softmax sums of the window's rows, pooled as everywhere here; the paper weights the
//   window's rows by their distance and takes the last 20 % of the tokens as window;
// - a layer's rows are chosen before its attention, which then runs for the chosen rows alone, over
//   the keys of all rows that entered the layer: the same result for the rows that go on;
// - the set is one for all KV heads, from scores summed over them after pooling (code: the mean of
//   the heads' weights);
// - sinks and window are protected, and the floor of a layer: where they are more than a deep
//   layer's share, the mean is above b. Original positions are kept, as in the code;
// - prompts below kv_min_prompt are left whole (code: a context of 64 tokens at least); ties as in
//   snapkv;
// - decode evicts nothing (code: a pass every 16 tokens).
#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/kv/policies/policies.h"
#include "engine/kv/policies/policy_util.h"

namespace headroom::engine {
namespace {

// The most that a layer's share is above or below the mean.
constexpr double kMaxSlope = 0.75;

// Entries of each KV head, [num_layers], descending; sinks and window at least.
std::vector<int32_t> Schedule(const KvPolicySpec& spec, const KvModelShape& shape,
                              const PromptInfo& prompt) {
  const int64_t mean = RetentionEntries(spec, prompt.num_tokens);
  const int64_t rest = prompt.num_tokens - mean;
  const double slope = spec.options.flat ? 0.0
                                         : std::min(kMaxSlope * static_cast<double>(mean),
                                                    static_cast<double>(rest));
  const HeadBudget least = UniformHeadBudget(spec, prompt, prompt.num_tokens);
  const int64_t floor_entries =
      std::min<int64_t>(prompt.num_tokens, int64_t{least.sink_slots} + least.window_slots);
  std::vector<int32_t> entries(static_cast<size_t>(shape.num_layers));
  for (int32_t layer = 0; layer <= (shape.num_layers - 1) / 2; ++layer) {
    const int32_t mirror = shape.num_layers - 1 - layer;
    const double angle =
        std::numbers::pi * layer / static_cast<double>(std::max(1, shape.num_layers - 1));
    const auto more = layer == mirror ? 0 : static_cast<int64_t>(slope * std::cos(angle));
    entries[static_cast<size_t>(layer)] =
        static_cast<int32_t>(std::max(mean + more, floor_entries));
    entries[static_cast<size_t>(mirror)] =
        static_cast<int32_t>(std::max(mean - more, floor_entries));
  }
  return entries;
}

// Layers whose rows drop, ascending.
std::vector<int32_t> DropLayers(const std::vector<int32_t>& entries, int32_t num_tokens) {
  std::vector<int32_t> layers;
  const auto num_layers = static_cast<int32_t>(entries.size());
  int32_t rows = num_tokens;
  for (int32_t layer = num_layers / 4; layer < num_layers; ++layer) {
    if (entries[static_cast<size_t>(layer)] < rows) {
      rows = entries[static_cast<size_t>(layer)];
      layers.push_back(layer);
    }
  }
  return layers;
}

class PyramidInferPolicy final : public KvPolicy {
 public:
  std::string name() const override { return "pyramidinfer"; }

  Status Validate(const KvPolicySpec& spec) const override {
    HEADROOM_RETURN_IF_ERROR(ValidateRanges(spec));
    HEADROOM_RETURN_IF_ERROR(RefuseTsp(name(), spec));
    return RefuseTypedDecode(name(), spec);
  }

  std::vector<std::string> OptionNames() const override { return {"schedule"}; }

  ScoreNeeds Needs(const KvPolicySpec& spec, const KvModelShape& shape,
                   const PromptInfo& prompt) const override {
    return WindowNeeds(RetentionApplies(spec, prompt.num_tokens) ? WindowRows(spec, prompt) : 0);
  }

  std::vector<PrefillPhase> PlanPhases(const KvPolicySpec& spec, const KvModelShape& shape,
                                       const PromptInfo& prompt) const override {
    if (!RetentionApplies(spec, prompt.num_tokens)) {
      return SinglePhase(shape);
    }
    std::vector<PrefillPhase> phases;
    int32_t begin = 0;
    for (const int32_t layer : DropLayers(Schedule(spec, shape, prompt), prompt.num_tokens)) {
      phases.push_back({.layer_begin = begin, .layer_end = layer, .selects_rows = true});
      begin = layer;
    }
    phases.push_back({.layer_begin = begin, .layer_end = shape.num_layers});
    return phases;
  }

  LayerPlan PlanPrefill(const KvPolicySpec& spec, const KvModelShape& shape,
                        const PromptInfo& prompt, int32_t layer, int32_t num_slots) const override {
    if (!RetentionApplies(spec, prompt.num_tokens)) {
      return {};
    }
    const HeadBudget budget = UniformHeadBudget(spec, prompt, num_slots);
    const int32_t entries = Schedule(spec, shape, prompt)[static_cast<size_t>(layer)];
    LayerPlan plan = SameForAllHeads(shape,
                                     {.num_entries = std::min(entries, num_slots),
                                      .sink_slots = budget.sink_slots,
                                      .recent_slots = budget.window_slots,
                                      .score = ScoreKind::kWindowAllHeads},
                                     num_slots);
    plan.overran = budget.overran;
    return plan;
  }

  TspPlan PlanTsp(const KvPolicySpec& spec, const KvModelShape& shape, const PromptInfo& prompt,
                  int32_t phase) const override {
    const std::vector<int32_t> entries = Schedule(spec, shape, prompt);
    const int32_t layer = DropLayers(entries, prompt.num_tokens)[static_cast<size_t>(phase)];
    return {.num_rows = entries[static_cast<size_t>(layer)],
            .sink_slots = SinkRows(spec, prompt),
            .recent_slots = WindowRows(spec, prompt)};
  }
};

}  // namespace

std::unique_ptr<KvPolicy> MakePyramidInferPolicy() {
  return std::make_unique<PyramidInferPolicy>();
}

}  // namespace headroom::engine
