// KvPolicy: a pure planner. It returns data and never touches pages, scores or devices.
//
// One file per policy in policies/, listed in policy_registry.cc. A policy object is immutable and
// shared by all requests that name it; everything about a request arrives as an argument.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/kv/budget.h"

namespace headroom::engine {

// The model's shape, as policies see it.
struct KvModelShape {
  int32_t num_layers = 0;
  int32_t num_kv_heads = 0;
  int32_t tsp_layer = 0;  // T, a server setting
};

// One leg of a prefill: rows R_p through layers [layer_begin, layer_end). Phase 0 runs all prompt
// rows; R_{p+1} is chosen by PlanTsp after phase p's last chunk.
struct PrefillPhase {
  int32_t layer_begin = 0;
  int32_t layer_end = 0;
  // Layer `layer_end` also gets K and V of every row of this phase, is scored with its queries, and
  // the rows that enter it are kept aside; the next phase starts there.
  bool selects_rows = false;
};

enum class ScoreKind : uint8_t { kNone, kWindow };

// What one KV head keeps of the slots that its layer holds: the must-keep slots, then the best by
// score until `num_entries` are kept. Slots are indices into the layer's rows, ascending by
// position.
struct HeadPlan {
  int32_t num_entries = 0;   // in [must-keep count, num_slots]; all slots when equal to num_slots
  int32_t sink_slots = 0;    // the first so many slots must stay
  int32_t recent_slots = 0;  // the last so many slots must stay
  ScoreKind score = ScoreKind::kNone;  // kNone: must-keep fills num_entries exactly
  std::vector<int32_t> keep_slots;     // further must-keep slots, ascending; may be empty
};

struct LayerPlan {
  bool keep_all = true;         // nothing is evicted and nothing is copied
  std::vector<HeadPlan> heads;  // [num_kv_heads] when !keep_all
  bool overran = false;  // must-keep sets were larger than the budget: the receipt says `floor`
};

// Rows that go on above the TSP layer: the protected ones, then the best until num_rows.
struct TspPlan {
  int32_t num_rows = 0;
  int32_t sink_slots = 0;
  int32_t recent_slots = 0;
  std::vector<int32_t> keep_slots;  // further protected rows, ascending; may be empty
  bool overran = false;
};

// What decode evicts from one KV head once it holds `capacity_slots` + one page: the oldest slots
// behind the sinks, a page at a time.
struct DecodePlan {
  bool evicts = false;
  int32_t sink_slots = 0;
  int32_t capacity_slots = 0;
};

// Pages of one sequence, all layers and KV heads together, page rounding included.
struct KvFootprint {
  int64_t prefill_peak_pages = 0;  // most that prefill ever holds, decode's first page included
  int64_t steady_pages = 0;        // after prefill plus `max_new_tokens` decode slots
  int64_t shared_pages = 0;        // of steady_pages, those that decode never writes: forks share them
};

class KvPolicy {
 public:
  virtual ~KvPolicy() = default;

  virtual std::string name() const = 0;

  // Refuses settings that this policy cannot use; the message names the field and both sides.
  virtual Status Validate(const KvPolicySpec& spec) const = 0;

  // Rows of queries that scoring needs at the prompt's end; 0: none.
  virtual int32_t NumWindowRows(const KvPolicySpec& spec, const PromptInfo& prompt) const = 0;

  virtual std::vector<PrefillPhase> PlanPhases(const KvPolicySpec& spec, const KvModelShape& shape,
                                               const PromptInfo& prompt) const = 0;

  // `num_slots` rows reached this layer (N, or |S| above the TSP layer).
  virtual LayerPlan PlanPrefill(const KvPolicySpec& spec, const KvModelShape& shape,
                                const PromptInfo& prompt, int32_t layer,
                                int32_t num_slots) const = 0;

  virtual TspPlan PlanTsp(const KvPolicySpec& spec, const KvModelShape& shape,
                          const PromptInfo& prompt) const = 0;

  // Called once a sequence is decoding; the same for all its heads of this layer length.
  virtual DecodePlan PlanDecode(const KvPolicySpec& spec, const KvModelShape& shape,
                                const PromptInfo& prompt, int32_t layer, int32_t kv_head) const = 0;

  // A bound that the sequence never exceeds: ReplayFootprint, unless a policy knows better.
  virtual KvFootprint Footprint(const KvPolicySpec& spec, const KvModelShape& shape,
                                const PromptInfo& prompt, int32_t max_new_tokens) const;
};

// The policies by wire name. Unknown name: null.
class KvPolicyRegistry {
 public:
  KvPolicyRegistry();  // full, streaming, fastkv
  const KvPolicy* Find(const std::string& name) const;
  std::vector<std::string> Names() const;  // in the order they were added
  // Tests add their own; a policy of the same name is replaced.
  void Add(std::unique_ptr<KvPolicy> policy);

 private:
  std::vector<std::unique_ptr<KvPolicy>> policies_;
};

}  // namespace headroom::engine
