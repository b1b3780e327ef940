// Validation: whether spending a budget by a map beats spending it evenly, on material that the
// map was not made from; and the choices that only a measurement can make.
//
// Sweeps dense_share and local_share at each retention (one prefill per prompt serves them all),
// chooses the split of each preference, then measures every candidate of the TSP layer with the
// balanced split. Writes `spend`, `tsp` and `validation` of the map. The same inputs give the same
// map, whatever the number of threads. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/kv/head_map.h"
#include "profiler/evaluation/cache_set.h"
#include "profiler/evaluation/documents.h"
#include "profiler/evaluation/fidelity.h"
#include "profiler/evaluation/needles.h"
#include "profiler/evaluation/observer.h"
#include "profiler/spend_choice.h"

namespace headroom::profiler {

// Held out of the profile. Documents or needles may be empty, not both.
struct ValidationMaterial {
  std::vector<Document> documents;  // each longer than fidelity.continuation_tokens
  FidelityOptions fidelity;
  std::vector<NeedleTask> tasks;
  NeedleOptions needles;  // protocols: both
};

struct ValidationOptions {
  std::vector<int64_t> retentions_ppm = {100'000, 200'000, 300'000, 500'000};
  std::vector<int64_t> dense_shares_ppm = {0,       350'000, 500'000, 650'000,
                                           800'000, 900'000, 950'000, 1'000'000};
  std::vector<int64_t> local_shares_ppm = {250'000, 500'000};           // beside 0
  std::vector<std::string> uniform = {"fastkv", "adakv", "streaming"};  // compared, without TSP
  int64_t tsp_ppm = 200'000;                                            // of the TSP candidates,
  int64_t tsp_retention_ppm = 200'000;                                  // with this retention
  kernels::KvDType kv_dtype = kernels::KvDType::kF32;
  SpendChoiceOptions choice;
  // A map of fewer prompts stays unvalidated, whatever was measured. `num_prompts` were given,
  // held-out ones among them; -1: those that the map names.
  int64_t num_prompts = -1;
  int64_t min_prompts = 100;
};

// `map` has heads, a profile and tsp.candidates. `model.policies` need not hold `adaptive`.
Status ValidateMap(const EvalModel& model, const ValidationMaterial& material,
                   const ValidationOptions& options, EvalObserver& observer, engine::HeadMap* map);

}  // namespace headroom::profiler
