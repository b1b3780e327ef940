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
// rows; R_{p+1} is chosen by PlanTsp after phase p's last chunk. Phases follow each other without a
// gap in layers, but for one that starts afresh.
struct PrefillPhase {
  int32_t layer_begin = 0;
  int32_t layer_end = 0;
  // Layer `layer_end` also gets K and V of every row of this phase, is scored with its queries, and
  // the rows that enter it are kept aside; the next phase starts there.
  bool selects_rows = false;
  // With selects_rows: nothing of this phase stays. Its pages go back, no row is kept aside, and
  // the chosen rows are a fresh prompt at positions 0..k-1 from layer 0 [GemFilter 2409.17422].
  bool restarts = false;
};

// What slots of a KV head are ordered by.
enum class ScoreKind : uint8_t {
  kNone,
  kWindow,          // window scores of the head
  kWindowAllHeads,  // window scores summed over the layer's KV heads: all heads keep one set
  kColumnSum,       // column sums of the head, ScoreNeeds::columns[0]
  kColumnMean,      // the same, each divided by the number of observing rows that see the slot
};

enum class DecodeKind : uint8_t {
  kGrow,         // nothing is evicted
  kRing,         // the oldest behind the sinks
  kLowestScore,  // the lowest scored of those that are neither sinks nor recent
};

// Typed decode of a head whose slots are chosen by scores: it keeps to what it was given and one
// page more. Pinned slots never go: sinks, what is named here, and up to max_pinned_rows decoded
// rows of those classes, for which there is room beside. kLowestScore protects a page of recent
// slots; its scores go on from what the prompt's rows gave (window scores where there are no
// column sums).
struct TypedDecode {
  DecodeKind kind = DecodeKind::kGrow;
  bool pins_special = false;      // kept slots and decoded rows of class kSpecial
  bool pins_punctuation = false;  // the same of class kPunctuation
  int32_t free_tail = -1;         // >= 0: kept slots but the prompt's last so many are pinned, too
  int32_t max_pinned_rows = 0;
};

// One step of a ladder: what a head would keep, as a union of sets.
struct Rung {
  bool special = false;       // tokens of class kSpecial, beside the head's sinks
  bool punctuation = false;   // tokens of class kPunctuation
  int32_t heavy_entries = 0;  // so many more of the best columns, outside all the others
  int32_t local_slots = 0;    // the last so many slots; each row's own window when mass is measured
  TypedDecode typed = {};     // of a head that keeps this
};

// What one KV head keeps of the slots that its layer holds: the must-keep slots, then the best by
// score until `num_entries` are kept. Slots are indices into the layer's rows, ascending by
// position.
struct HeadPlan {
  // In [must-keep count, num_slots]; all slots when equal to num_slots. A head of a layer pool or
  // with a ladder keeps at most so many.
  int32_t num_entries = 0;
  int32_t sink_slots = 0;                // the first so many slots must stay
  int32_t recent_slots = 0;              // the last so many slots must stay
  ScoreKind score = ScoreKind::kNone;    // kNone: must-keep fills num_entries exactly
  std::vector<int32_t> keep_slots = {};  // further must-keep slots, ascending; may be empty
  bool keep_special = false;             // slots of class kSpecial must stay
  // Layer pools: the head's best so many, its must-keep and quota slots among them, before heads
  // compete; and quotas that are taken first, outside the must-keep slots, in this order: the
  // newest so many, the best so many of class kPunctuation (there are as many), the oldest so many.
  int32_t safe_entries = 0;
  int32_t newest_entries = 0;
  int32_t punctuation_entries = 0;
  int32_t oldest_entries = 0;
  // Layer pools: behind quotas, slots that are no punctuation come first among the safe ones.
  bool content_first = false;
  bool competes = true;    // layer pools: else the head keeps safe_entries exactly
  float weight = 1.0f;     // layer pools: of the head's scores against those of others
  TypedDecode typed = {};  // without a ladder; read where the policy's PlanDecode says grow
  // Layer pools, > 0: rows that score nothing (ScoreNeeds::check_rows) test the head. Where the
  // mass of its must-keep and quota slots (of its safe ones, if it competes) and of each row's own
  // last check_near is below this, its neediest query head decides, it climbs: to
  // escalated_entries, of which there are at least as many as safe ones, or to all slots if it
  // competes.
  int64_t check_target_ppm = 0;
  int32_t escalated_entries = 0;
  // Not empty: the head keeps the first rung whose mass, of its neediest query head, is at least
  // mass_target_ppm; all slots if none is. Masses come from ScoreNeeds::columns.back(), heavy
  // columns from columns.front(); the other fields but sink_slots and `score` are not read.
  std::vector<Rung> rungs = {};
  int64_t mass_target_ppm = 0;
};

enum class KvPool : uint8_t { kHead, kLayer };

struct LayerPlan {
  bool keep_all = true;              // nothing is evicted and nothing is copied
  std::vector<HeadPlan> heads = {};  // [num_kv_heads] when !keep_all
  bool overran = false;  // must-keep sets were larger than the budget: the receipt says `floor`
  // kHead: each head keeps its num_entries. kLayer: the heads keep pool_entries together; what
  // their must-keep and safe slots leave goes to the best (head, slot) pairs; a head that holds
  // its num_entries wins no more.
  KvPool pool = KvPool::kHead;
  int32_t pool_entries = 0;
};

// Sums over query rows that a policy reads, [heads, slots] of one layer (kernels::ColumnScores).
struct ColumnNeeds {
  int32_t last_rows = 0;          // over the prompt's last so many rows
  uint8_t rows_of_four = 0b1111;  // of them row i where bit (N - 1 - i) % 4 is set
  kernels::ColumnKind kind = kernels::ColumnKind::kProbability;
  bool per_query_head = false;  // else per KV head
  int32_t near_slots = 0;       // > 0: also over each row's last so many slots alone
  bool operator==(const ColumnNeeds&) const = default;
};

// What scoring a layer reads.
struct ScoreNeeds {
  int32_t window_rows = 0;  // queries of a phase's last so many rows are kept; 0: none
  kernels::WindowScoreKind window_kind = kernels::WindowScoreKind::kSoftmax;
  // Queries of so many rows before the window are kept too, or of as many as there are: they test
  // heads (HeadPlan::check_target_ppm), with each row's last check_near slots as kept.
  int32_t check_rows = 0;
  int32_t check_near = 0;
  // Sums over no more than window_rows rows are computed from the kept queries at the end, the
  // others as the rows pass. Only for policies with one phase.
  std::vector<ColumnNeeds> columns = {};
};

// Rows that go on above the TSP layer: the protected ones, then the best until num_rows.
struct TspPlan {
  int32_t num_rows = 0;
  int32_t sink_slots = 0;
  int32_t recent_slots = 0;
  std::vector<int32_t> keep_slots = {};  // further protected rows, ascending; may be empty
  int32_t punctuation_rows = 0;  // then the best so many of class kPunctuation (there are as many)
  bool overran = false;
};

// What slots of a head are ordered by while it decodes. Every decode row adds, summed over the
// query heads of the group, to what the prompt's rows gave the kept slots.
enum class DecodeScore : uint8_t {
  kSum,          // the probabilities that rows gave a slot
  kMean,         // the same, divided by the number of rows that have seen the slot
  kRecentCount,  // how many of the last 400 rows gave it at least the mean of what they see
};

// What decode evicts from one KV head once it holds `capacity_slots` + one page: a page of slots at
// once, none of them pinned. The newest token always stays, and under kLowestScore the last
// `recent_slots`; capacity is at least sink_slots + recent_slots.
struct DecodePlan {
  DecodeKind kind = DecodeKind::kGrow;
  int32_t sink_slots = 0;
  int32_t capacity_slots = 0;
  int32_t recent_slots = 0;               // kLowestScore
  DecodeScore score = DecodeScore::kSum;  // kLowestScore; one for all heads of a layer
  // Of a TypedDecode: decoded rows of these classes are pinned, at most so many.
  bool pins_special = false;
  bool pins_punctuation = false;
  int32_t max_pinned_rows = 0;

  bool evicts() const { return kind != DecodeKind::kGrow; }
  bool scores() const { return kind == DecodeKind::kLowestScore; }
};

// Pages of one sequence, all layers and KV heads together, page rounding included.
struct KvFootprint {
  int64_t prefill_peak_pages = 0;  // most that prefill ever holds, decode's first page included
  int64_t steady_pages = 0;        // after prefill plus `max_new_tokens` decode slots
  int64_t shared_pages = 0;  // of steady_pages, those that decode never writes: forks share them
};

class KvPolicy {
 public:
  virtual ~KvPolicy() = default;

  virtual std::string name() const = 0;

  // Refuses settings that this policy cannot use; the message names the field and both sides.
  virtual Status Validate(const KvPolicySpec& spec) const = 0;

  // Refuses settings that a model of this shape cannot use.
  virtual Status ValidateShape(const KvPolicySpec& spec, const KvModelShape& shape) const {
    return OkStatus();
  }

  // Names of `kv_options` that this policy reads.
  virtual std::vector<std::string> OptionNames() const { return {}; }

  // Whether a recovery target (theta) takes the place of a retention.
  virtual bool has_recovery() const { return false; }
  // What decode does where the request does not say.
  virtual KvDecode default_decode() const { return KvDecode::kGrow; }

  // Whether something would be dropped, but the prompt is shorter than kv_min_prompt.
  virtual bool LeavesWhole(const KvPolicySpec& spec, const PromptInfo& prompt) const {
    return RetentionIsShort(spec, prompt.num_tokens);
  }

  virtual ScoreNeeds Needs(const KvPolicySpec& spec, const KvModelShape& shape,
                           const PromptInfo& prompt) const = 0;

  // One phase through all layers, unless a policy drops rows.
  virtual std::vector<PrefillPhase> PlanPhases(const KvPolicySpec& spec, const KvModelShape& shape,
                                               const PromptInfo& prompt) const {
    return {{.layer_begin = 0, .layer_end = shape.num_layers}};
  }

  // `num_slots` rows reached this layer (N, or |S| above the TSP layer).
  virtual LayerPlan PlanPrefill(const KvPolicySpec& spec, const KvModelShape& shape,
                                const PromptInfo& prompt, int32_t layer,
                                int32_t num_slots) const = 0;

  // The same for all layers, `layer_slots` [num_layers] rows: for policies that plan them together.
  virtual std::vector<LayerPlan> PlanLayers(const KvPolicySpec& spec, const KvModelShape& shape,
                                            const PromptInfo& prompt,
                                            const std::vector<int32_t>& layer_slots) const;

  // The rows that follow phase `phase`, which selects rows; asked only where one does, and where a
  // tsp_ratio applies.
  virtual TspPlan PlanTsp(const KvPolicySpec& spec, const KvModelShape& shape,
                          const PromptInfo& prompt, int32_t phase) const {
    return {};
  }

  // What decode evicts from this head; nothing (grow) unless a policy says otherwise.
  virtual DecodePlan PlanDecode(const KvPolicySpec& spec, const KvModelShape& shape,
                                const PromptInfo& prompt, int32_t layer, int32_t kv_head) const {
    return {};
  }

  // A bound that the sequence never exceeds: ReplayFootprint, unless a policy knows better.
  virtual KvFootprint Footprint(const KvPolicySpec& spec, const KvModelShape& shape,
                                const PromptInfo& prompt, int32_t max_new_tokens) const;
};

// The policies by wire name. Unknown name: null.
class KvPolicyRegistry {
 public:
  KvPolicyRegistry();  // those of policies/policies.h
  const KvPolicy* Find(const std::string& name) const;
  std::vector<std::string> Names() const;  // in the order they were added
  // Tests add their own; a policy of the same name is replaced.
  void Add(std::unique_ptr<KvPolicy> policy);

 private:
  std::vector<std::unique_ptr<KvPolicy>> policies_;
};

}  // namespace headroom::engine
