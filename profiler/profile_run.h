// A profile from prompts to map: statistics and probes of every prompt, classifier, choice of the
// TSP layer. Everything but validation (profiler/validation.h).
//
// The result depends on the set of prompts, the model and the options; not on the order of prompts,
// threads or chunks. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/kv/head_map.h"
#include "profiler/classifier.h"
#include "profiler/evaluation/cache_set.h"
#include "profiler/evaluation/observer.h"
#include "profiler/head_clusters.h"
#include "profiler/profile_prompts.h"
#include "profiler/tsp_choice.h"

namespace headroom::profiler {

struct ProbeOptions {
  bool needles = true;    // in running text; needs a tokenizer
  bool induction = true;  // repeated random blocks
  int32_t num_needle_prompts = 32;
  int32_t num_blocks = 8;
  int32_t length = 1000;  // tokens; less where context or text are shorter
};

struct ProfileOptions {
  std::string version;  // of the program
  bool paper_ladder = false;
  bool paper_statistic = false;  // beside ours; costs more
  bool by_clusters = false;
  int32_t num_clusters = 4;
  int64_t budget_ratio_ppm = 300'000;
  ClassifierOptions classifier;
  ProbeOptions probes;
  TspOptions tsp;
  bool stop_early = true;   // once types have settled
  int32_t max_context = 0;  // that the model was made for; 0: all it can
};

// What a report shows beside the map.
struct ProfileNotes {
  Classification classification;
  std::vector<engine::HeadType> threshold_types;  // beside clusters
  ClusterQuality clusters;                        // by_clusters only
  int64_t num_prompts = 0;                        // measured
  int64_t num_given = 0;         // before lengths and held-out ones; 0: those that were measured
  int64_t num_prompts_left = 0;  // not needed: the types had settled
  std::vector<std::string> warnings;
};

struct ProfileResult {
  engine::HeadMap map;  // unvalidated
  ProfileNotes notes;
};

// `input` is sorted (SortAndLimit). `identity` fills the map's model and tokenizer. `format` is
// null without a tokenizer. Errors: no prompt, memory, kCancelled.
struct ProfileIdentity {
  engine::MapModel model;
  engine::MapTokenizer tokenizer;
};
StatusOr<ProfileResult> RunProfile(const EvalModel& model, kernels::KvDType kv_dtype,
                                   const ProfileInput& input, const TextFormat* format,
                                   const ProfileIdentity& identity, const ProfileOptions& options,
                                   EvalObserver& observer);

// Plans for the three preferences before validation has found better ones.
std::vector<engine::SpendPlan> DefaultSpendPlans();

}  // namespace headroom::profiler
