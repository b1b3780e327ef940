// Everything that a policy decides of one prefill before it runs, as data.
//
// KvCache executes it, Footprint replays it, and a server can read it before anything is queued
// (the `reasons`). Which slots win is not in it: that needs scores.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/kv/policy.h"

namespace headroom::engine {

struct PrefillPlan {
  std::vector<PrefillPhase> phases;   // >= 1; layer ranges follow each other from 0 to L
  std::vector<int32_t> phase_rows;    // [phases], rows that each phase runs
  std::vector<TspPlan> selections;    // [phases - 1], the rows that follow each phase
  ScoreNeeds needs;                   // window_rows <= N
  std::vector<LayerPlan> layers;      // [num_layers]
  std::vector<int32_t> layer_slots;   // [num_layers], slots of each head before compaction
  std::vector<int32_t> layer_phases;  // [num_layers], whose rows those are
  int64_t retention_ppm = kPpm;       // applied
  int64_t tsp_ppm = kPpm;             // applied
  std::vector<std::string> reasons;   // short_prompt, floor
};

// The phase that starts the rows which stay: after the last restart, else 0.
int32_t FirstKeptPhase(const PrefillPlan& plan);

// `spec` passed policy.Validate; prompt.num_tokens >= 1.
PrefillPlan MakePrefillPlan(const KvPolicy& policy, const KvPolicySpec& spec,
                            const KvModelShape& shape, const PromptInfo& prompt);

// The most slots that one head of `layer` holds after prefill: exact but for layer pools and
// ladders, where scores decide.
int32_t KeptSlots(const PrefillPlan& plan, int32_t layer, int32_t kv_head);

// Pages that prefill holds at most, and pages with `new_slots` decoded slots in every head.
// `decode` has a plan per (layer, KV head).
int64_t PrefillPeakPages(const PrefillPlan& plan, const KvModelShape& shape);
int64_t DecodePages(const PrefillPlan& plan, const KvModelShape& shape,
                    std::span<const DecodePlan> decode, int64_t new_slots);
// Pages of a head of `kept` slots that decode never writes while `new_slots` are added: its full
// pages, unless it evicts by then.
int64_t SharedPages(const DecodePlan& plan, int64_t kept, int64_t new_slots);
// The most pages such a head ever has.
int64_t DecodePages(const DecodePlan& plan, int64_t kept, int64_t new_slots);
std::vector<DecodePlan> MakeDecodePlans(const KvPolicy& policy, const KvPolicySpec& spec,
                                        const KvModelShape& shape, const PromptInfo& prompt);

// The exact worst case of a sequence over all ways to cut its phases into chunks: the last chunk of
// a phase has one row, so that every layer is as long as it can be while the others compact; one
// layer's winners lie beside its old pages.
KvFootprint ReplayFootprint(const KvPolicy& policy, const KvPolicySpec& spec,
                            const KvModelShape& shape, const PromptInfo& prompt,
                            int32_t max_new_tokens);

}  // namespace headroom::engine
