#include "tests/support/test_map.h"

#include "base/philox.h"

namespace headroom::testing {

using engine::HeadEntry;
using engine::HeadMap;
using engine::HeadType;

namespace {

HeadMap MakeShape(int32_t num_layers, int32_t num_kv_heads) {
  HeadMap map;
  map.model.name = "by formula";
  map.model.num_layers = num_layers;
  map.model.num_query_heads = num_kv_heads;
  map.model.num_kv_heads = num_kv_heads;
  map.model.head_dim = 8;
  return map;
}

HeadEntry MakeHead(const Philox& random, uint64_t index) {
  // Five heads that follow each other have five types, in an order of their own.
  constexpr HeadType kOrder[] = {HeadType::kDense, HeadType::kLocal, HeadType::kHeavy,
                                 HeadType::kPunct, HeadType::kSpecial};
  HeadEntry head;
  head.type = kOrder[index % 5];
  head.confidence_ppm = random.Uniform(5 * index) < 0.1 ? 500'000 : 1'000'000;
  head.borderline = random.Uniform(5 * index + 1) < 0.05;
  head.window = index % 3 == 0 ? 0 : 5 + static_cast<int32_t>(index % 11);
  head.budget_tokens = 4;
  head.budget_ppm = 100'000 + static_cast<int64_t>(random.Uniform(5 * index + 2) * 300'000);
  head.keeps_punctuation = head.type == HeadType::kPunct || index % 2 == 0;
  head.weight_ppm = 500'000 + static_cast<int64_t>(index % 4) * 500'000;
  head.copy_ppm = static_cast<int64_t>(random.Uniform(5 * index + 3) * 1'000'000);
  head.fill_rank = static_cast<int32_t>(index % 4) - 1;
  head.induction_ppm = static_cast<int64_t>(random.Uniform(5 * index + 4) * 1'000'000);
  return head;
}

}  // namespace

HeadMap MakeTestMap(int32_t num_layers, int32_t num_kv_heads, uint64_t seed) {
  HeadMap map = MakeShape(num_layers, num_kv_heads);
  const Philox random(seed, 91);
  for (int32_t i = 0; i < num_layers * num_kv_heads; ++i) {
    map.heads.push_back(MakeHead(random, static_cast<uint64_t>(i)));
  }
  map.spend = {{.prefer = "answers",
                .local_share_ppm = 0,
                .layers_by_demand = true,
                .points = {{.retention_ppm = 100'000, .dense_share_ppm = 800'000}}},
               {.prefer = "balanced",
                .local_share_ppm = 300'000,
                .layers_by_demand = false,
                .points = {{.retention_ppm = 100'000, .dense_share_ppm = 250'000},
                           {.retention_ppm = 200'000, .dense_share_ppm = 500'000},
                           {.retention_ppm = 500'000, .dense_share_ppm = 400'000}}}};
  return map;
}

HeadMap MakeUniformMap(int32_t num_layers, int32_t num_kv_heads) {
  HeadMap map = MakeShape(num_layers, num_kv_heads);
  HeadEntry head;
  head.type = HeadType::kHeavy;
  head.confidence_ppm = 1'000'000;
  map.heads.assign(static_cast<size_t>(num_layers) * static_cast<size_t>(num_kv_heads), head);
  return map;
}

std::unique_ptr<engine::KvPolicy> MakeTestAdaptive(int32_t num_layers, int32_t num_kv_heads) {
  return engine::MakeAdaptivePolicy(
      std::make_shared<const HeadMap>(MakeTestMap(num_layers, num_kv_heads, /*seed=*/4)),
      "balanced", kShortSettings);
}

}  // namespace headroom::testing
