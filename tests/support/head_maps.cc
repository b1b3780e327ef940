#include "tests/support/head_maps.h"

#include "base/sha256.h"

namespace headroom::testing {
namespace {

using engine::HeadEntry;
using engine::HeadMap;
using engine::HeadType;

HeadEntry MakeHead(int32_t index, int32_t num_heads, int32_t group_size) {
  HeadEntry head;
  head.type = static_cast<HeadType>(index % engine::kNumHeadTypes);
  head.confidence_ppm = 999'999 - index % 1000;
  head.margin_ppm = 12'345 - 1000 * (index % 100);
  head.borderline = index % 7 == 3;
  head.budget_tokens = 68 + index % 5;
  head.budget_ppm = head.type == HeadType::kHeavy ? 50'000 : 0;
  head.window = head.type == HeadType::kLocal ? 256 : 0;
  head.keeps_punctuation = head.type == HeadType::kPunct;
  head.heavy_ppm = head.type == HeadType::kHeavy ? 50'000 : 0;
  head.weight_ppm = 1'000'000 + 1000 * (index % 10);
  head.copy_ppm = head.type == HeadType::kDense ? 100'000 + 800'000LL * index / num_heads : 1;
  head.induction_ppm = 2;
  head.masses_ppm = {400'001, 0, 60'000, 389'999, 150'000};
  head.recovery = {{"R0", 700'000, 710'000, -1},
                   {"R2:256", 960'000, 975'000, 20'000},
                   {"R5", 1'000'000, 1'000'000, 0}};
  head.curve_heavy = {{10'000, 800'000}, {50'000, 951'000}, {1'000'000, 1'000'000}};
  head.curve_local = {{64, 700'000}, {256, 960'000}};
  head.per_domain = {{"code", head.type}, {"prose", HeadType::kHeavy}};
  head.query_types.assign(static_cast<size_t>(group_size), HeadType::kSpecial);
  return head;
}

void FillSources(HeadMap* map) {
  map->tokenizer.vocab_hash = Sha256Text("vocabulary");
  map->tokenizer.chat_template_hash = Sha256Text("template");
  map->tokenizer.special_ids = {0, 1, 2};
  map->tokenizer.punct_rule = "unicode-P+newline/1";
  map->tokenizer.punct_ids_hash = Sha256Text("punctuation");
  map->profile.version = "0.1.0";
  map->profile.backend = "cpu";
  map->profile.kv_dtype = "f32";
  map->profile.seed = 0xffffffffffffffffULL;
  map->profile.reference_tokens = 1508;
  map->profile.reference_special = 5;
  map->profile.reference_punctuation = 201;
  map->profile.corpus = {{"code", Sha256Text("code"), 60, 61'000},
                         {"prose", Sha256Text("prose"), 60, 120'000}};
  map->profile.probes = {{"needle", Sha256Text("needle"), 8, 5600}};
}

void FillChoices(HeadMap* map) {
  map->tsp.layer = map->model.num_layers / 2;
  map->tsp.overlap_ppm.assign(static_cast<size_t>(map->model.num_layers), 333'333);
  map->tsp.candidates = {{0, 200'000, 300'000, 900'000, 400'000, 0, -1, true},
                         {map->model.num_layers - 1, 200'000, 1'000'000, 0, -10, -1, -1, false}};
  if (map->model.num_layers == 1) {
    map->tsp.candidates.pop_back();
  }
  map->spend = {{"answers", 0, false, {{100'000, 800'000}}},
                {"balanced", 0, false, {{100'000, 250'000}, {200'000, 500'000}}},
                {"fluency", 500'000, true, {{1, 250'000}}}};
  map->validation.status = "pass";
  map->validation.reasons = {"beats uniform at equal entries"};
  map->validation.documents = 8;
  map->validation.needles = 6;
  map->validation.rows = {
      {"adaptive", 200'000, 500'000, 0, 199'998, 42'000, 12'000, 300'000, 950'000, 1'000'000, -1},
      {"fastkv", 200'000, -1, -1, 199'999, 57'000, 21'000, 400'000, 940'000, 666'667, 0}};
  map->validation.front = {map->validation.rows[0]};
  map->bound = {"sha256:" + std::string(64, '0'), "sha256:" + std::string(64, 'f')};
}

}  // namespace

HeadMap MakeHeadMap(int32_t num_layers, int32_t num_kv_heads, int32_t group_size) {
  HeadMap map;
  map.model.name = "test \"model\" \xc3\xa9";
  map.model.num_layers = num_layers;
  map.model.num_query_heads = num_kv_heads * group_size;
  map.model.num_kv_heads = num_kv_heads;
  map.model.head_dim = 16;
  map.model.arch_hash = Sha256Text("arch");
  map.model.weights_hash = Sha256Text("weights");
  map.model.weights_scope = "full";
  map.model.weights_dtype = "F32";
  FillSources(&map);
  for (int32_t i = 0; i < num_layers * num_kv_heads; ++i) {
    map.heads.push_back(MakeHead(i, num_layers * num_kv_heads, group_size));
  }
  FillChoices(&map);
  return map;
}

}  // namespace headroom::testing
