#include "tests/support/adaptive_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/philox.h"
#include "kernels/ref/ref_backend.h"
#include "tests/support/policy_cases.h"
#include "tests/support/test_map.h"

namespace headroom::testing {

std::unique_ptr<engine::KvPolicy> MakePolicy(engine::HeadMap map, const std::string& prefer,
                                             const engine::AdaptiveSettings& settings) {
  return engine::MakeAdaptivePolicy(std::make_shared<const engine::HeadMap>(std::move(map)), prefer,
                                    settings);
}

engine::PromptInfo MakePrompt(int32_t num_tokens, uint64_t seed) {
  return {.num_tokens = num_tokens,
          .content_end = num_tokens,
          .classes = RandomClasses(num_tokens, seed)};
}

engine::PromptInfo MakeProse(int32_t num_tokens, uint64_t seed) {
  const Philox random(seed, 79);
  auto classes = std::make_shared<std::vector<engine::TokenClass>>();
  for (int32_t i = 0; i < num_tokens; ++i) {
    classes->push_back(random.Uniform(static_cast<uint64_t>(i)) < 0.25
                           ? engine::TokenClass::kPunctuation
                           : engine::TokenClass::kOther);
  }
  return {.num_tokens = num_tokens, .content_end = num_tokens, .classes = std::move(classes)};
}

Scores::Scores(uint64_t seed, int32_t num_tokens) : num_tokens_(num_tokens) {
  const Philox random(seed, 3);
  const int32_t count = kAdaptiveShape.num_layers * kAdaptiveShape.num_kv_heads * num_tokens;
  for (int32_t i = 0; i < count; ++i) {
    values_.push_back(static_cast<float>(random.Uniform(static_cast<uint64_t>(i))));
  }
}

float Scores::at(int32_t layer, int32_t head, int32_t position) const {
  return values_[static_cast<size_t>((layer * kAdaptiveShape.num_kv_heads + head) * num_tokens_ +
                                     position)];
}

engine::LayerScores Scores::Of(int32_t layer, const Slots& rows, int32_t window_rows) const {
  engine::LayerScores scores;
  scores.num_columns = static_cast<int32_t>(rows.size()) - window_rows;
  for (int32_t head = 0; head < kAdaptiveShape.num_kv_heads; ++head) {
    for (int32_t slot = 0; slot < scores.num_columns; ++slot) {
      scores.pooled.push_back(at(layer, head, rows[static_cast<size_t>(slot)]));
    }
  }
  scores.raw.assign(scores.pooled.size(), 0.0f);
  return scores;
}

Slots AllRows(int32_t num_tokens) {
  Slots rows(static_cast<size_t>(num_tokens));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

std::vector<engine::TokenClass> ClassesOf(const engine::PromptInfo& prompt, const Slots& rows) {
  std::vector<engine::TokenClass> classes;
  for (const int32_t row : rows) {
    classes.push_back(prompt.classes == nullptr ? engine::TokenClass::kOther
                                                : (*prompt.classes)[static_cast<size_t>(row)]);
  }
  return classes;
}

Prefilled RunPolicy(const engine::KvPolicy& policy, const engine::KvPolicySpec& spec,
                    const engine::PromptInfo& prompt, const Scores& scores) {
  EXPECT_TRUE(policy.Validate(spec).ok());
  const std::unique_ptr<kernels::Backend> backend = kernels::CreateRefBackend();
  engine::RetentionExecutor executor(*backend);
  Prefilled run;
  run.plan = engine::MakePrefillPlan(policy, spec, kAdaptiveShape, prompt);
  run.all = AllRows(prompt.num_tokens);
  run.propagated = run.all;
  if (run.plan.phases.size() > 1) {
    const engine::LayerScores at_t =
        scores.Of(kAdaptiveShape.tsp_layer, run.all, run.plan.needs.window_rows);
    executor.SelectRows(run.plan.selections[0], prompt.num_tokens, &at_t,
                        ClassesOf(prompt, run.all), kAdaptiveShape.num_kv_heads, run.propagated);
  }
  for (int32_t layer = 0; layer < kAdaptiveShape.num_layers; ++layer) {
    const Slots& rows = run.rows(layer);
    const engine::LayerPlan& plan = run.plan.layers[static_cast<size_t>(layer)];
    std::vector<Slots> kept(static_cast<size_t>(kAdaptiveShape.num_kv_heads),
                            AllRows(static_cast<int32_t>(rows.size())));
    if (!plan.keep_all) {
      const engine::LayerScores of_layer = scores.Of(layer, rows, run.plan.needs.window_rows);
      executor.SelectLayer(plan, static_cast<int32_t>(rows.size()), &of_layer,
                           ClassesOf(prompt, rows), kept);
    }
    for (Slots& slots : kept) {
      for (int32_t& slot : slots) {
        slot = rows[static_cast<size_t>(slot)];
      }
    }
    run.kept.push_back(kept);
  }
  return run;
}

int64_t NumEntries(const KeptSets& kept) {
  int64_t entries = 0;
  for (const std::vector<Slots>& layer : kept) {
    for (const Slots& head : layer) {
      entries += static_cast<int64_t>(head.size());
    }
  }
  return entries;
}

bool IsSubset(const Slots& smaller, const Slots& larger) {
  return std::includes(larger.begin(), larger.end(), smaller.begin(), smaller.end());
}

}  // namespace headroom::testing
