// HeadMap: what the offline profiler found out about every KV head of one model, and how `adaptive`
// spends a budget by it. Plain data of schema headmap/1 (docs/profiling.md).
//
// Shares, masses, scores and ratios are parts per million, as everywhere in budgets: the file
// writes them as decimals of up to six places, so that reading and writing lose nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace headroom::engine {

// Types in the order of what they need, the least first.
enum class HeadType : uint8_t { kSpecial, kPunct, kLocal, kHeavy, kDense };
inline constexpr int32_t kNumHeadTypes = 5;
const char* HeadTypeName(HeadType type);  // "special", "punct", "local", "heavy", "dense"
std::optional<HeadType> FindHeadType(std::string_view name);

// Kept mass at a size: `size` is a window in tokens, or a share of N in ppm.
struct CurvePoint {
  int64_t size = 0;
  int64_t mass_ppm = 0;
};

// Kept mass of one rung over the profiling prompts.
struct RungRecovery {
  std::string rung;  // "R0", "R1", "R2:256", "R2p:256", "R3:0.05", "R4:0.05+256", "R5"
  int64_t p10_ppm = 0;
  int64_t mean_ppm = 0;
  int64_t value_error_ppm = -1;  // |o_C - o| / |o| on sampled rows; -1: not measured
};

// One KV head. Its neediest query head decides (min over the group).
struct HeadEntry {
  HeadType type = HeadType::kHeavy;
  int64_t confidence_ppm = 0;  // share of bootstrap resamples with this type
  int64_t margin_ppm = 0;      // P10 of the chosen rung minus theta; may be negative
  bool borderline = false;
  // Entries that the chosen rung keeps of N tokens: budget_tokens + budget_ppm * N / 1e6.
  int64_t budget_tokens = 0;
  int64_t budget_ppm = 0;
  int32_t window = 0;              // kLocal: tokens of its window
  bool keeps_punctuation = false;  // kPunct, and kLocal on rung R2p
  int64_t heavy_ppm = 0;           // kHeavy: share of N that its rung keeps by score
  int64_t weight_ppm = 1'000'000;  // u of the greedy
  int64_t copy_ppm = 0;            // probe scores, the larger one orders dense heads
  int64_t induction_ppm = 0;
  // kDense: its place in the order that a budget fills them in, 0 first, by what it is worth to
  // answers (profiler/dense_order.h); -1: not measured, it stands behind those by probe score.
  int32_t fill_rank = -1;
  // Mean mass of late rows on: sinks, special tokens, punctuation, the last 64, the rest.
  std::array<int64_t, 5> masses_ppm = {};
  std::vector<RungRecovery> recovery;   // in the ladder's order
  std::vector<CurvePoint> curve_heavy;  // P10 mass of R1 + the best share of columns
  std::vector<CurvePoint> curve_local;  // P10 mass of R0 + a window
  std::vector<std::pair<std::string, HeadType>> per_domain;  // by name ascending
  std::vector<HeadType> query_types;                         // [group_size], diagnostics

  int64_t probe_ppm() const { return copy_ppm > induction_ppm ? copy_ppm : induction_ppm; }
};

// What identifies a model. Hashes are "sha256:<hex>" (models/fingerprint.h).
struct MapModel {
  std::string name;  // informational
  int32_t num_layers = 0;
  int32_t num_query_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  std::string arch_hash;
  std::string weights_hash;
  std::string weights_scope;  // "full"
  std::string weights_dtype;  // informational: "Q4_1"
};

struct MapTokenizer {
  std::string vocab_hash;  // empty: the model has no tokenizer
  std::string chat_template_hash;
  std::vector<int32_t> special_ids;  // ascending
  std::string punct_rule;            // "unicode-P+newline/1"
  std::string punct_ids_hash;
};

struct MapCorpus {
  std::string domain;
  std::string hash;  // over the token ids of its prompts, whatever their order
  int64_t prompts = 0;
  int64_t tokens = 0;
};

struct MapProfile {
  std::string version;  // of the program
  std::string backend;
  std::string kv_dtype;
  std::string metric = "kept_mass";
  std::string ladder = "default/1";        // or "paper/1"
  std::string classifier = "threshold/1";  // or "cluster/1"
  std::string group_reduce = "min";
  std::string eval_rows = "last-quarter/512";
  std::string select_rows = "before-eval/512";
  int64_t theta_ppm = 950'000;
  int64_t budget_ratio_ppm = 300'000;
  int64_t probe_threshold_ppm = 100'000;
  int32_t sink_tokens = 4;
  int32_t recent_tokens = 64;  // w0
  uint64_t seed = 0;
  // Means over the profiling prompts, where rungs were compared by their entries.
  int64_t reference_tokens = 0;
  int64_t reference_special = 0;  // sinks included
  int64_t reference_punctuation = 0;
  std::vector<MapCorpus> corpus;  // by domain ascending
  std::vector<MapCorpus> probes;  // by kind ascending: "induction", "needle", "needle_prompts"
};

// Where TSP cuts, and what each cut costs.
struct TspCandidate {
  int32_t layer = 0;
  int64_t tsp_ppm = 200'000;
  int64_t row_layers_ppm = 0;   // share of (row, layer) pairs that still run
  int64_t probe_above_ppm = 0;  // share of the dense heads' probe score that lies above the layer
  // Validated; -1: not measured.
  int64_t delta_nll_ppm = 0;
  int64_t seen_ppm = -1;
  int64_t unseen_ppm = -1;
  bool validated = false;
};
struct TspChoice {
  int32_t layer = 0;
  std::vector<int64_t> overlap_ppm;      // [num_layers], of a layer's top tokens with later layers'
  std::vector<TspCandidate> candidates;  // by layer ascending
};

// How `adaptive` splits a budget.
struct SpendPoint {
  int64_t retention_ppm = 0;    // rho; between points the dense part is interpolated
  int64_t dense_share_ppm = 0;  // of the elastic pool
};
struct SpendPlan {
  std::string prefer;              // "answers", "balanced", "fluency"
  int64_t local_share_ppm = 0;     // at most 500,000
  bool layers_by_demand = false;   // else by the number of elastic heads
  std::vector<SpendPoint> points;  // by retention ascending
};

// One measured point: a policy at a budget on held-out material.
struct ValidationRow {
  std::string policy;
  int64_t retention_ppm = 0;
  int64_t dense_share_ppm = -1;  // adaptive only
  int64_t local_share_ppm = -1;
  int64_t entries_ppm = 0;  // stored entries, share of the full cache's
  int64_t delta_nll_ppm = 0;
  int64_t kl_ppm = 0;
  int64_t p99_kl_ppm = 0;
  int64_t top1_ppm = 0;
  int64_t seen_ppm = -1;    // needles answered, question in the prompt; -1: none asked
  int64_t unseen_ppm = -1;  // question after the compression
};

struct MapValidation {
  std::string status = "unvalidated";  // "pass", "fail", "unvalidated"
  std::vector<std::string> reasons;
  int32_t documents = 0;
  int32_t needles = 0;
  std::vector<ValidationRow> rows;   // the map's choice beside uniform policies
  std::vector<ValidationRow> front;  // the swept splits
};

struct HeadMap {
  MapModel model;
  MapTokenizer tokenizer;
  MapProfile profile;
  std::vector<HeadEntry> heads;  // [num_layers, num_kv_heads]
  TspChoice tsp;
  std::vector<SpendPlan> spend;  // by `prefer` ascending; the three preferences
  MapValidation validation;
  std::vector<std::string> bound;  // weights hashes of quantised siblings, ascending
  std::string hash;  // "sha256:<hex>" of the file's canonical text without this member

  const HeadEntry& head(int32_t layer, int32_t kv_head) const {
    return heads[static_cast<size_t>(layer) * static_cast<size_t>(model.num_kv_heads) +
                 static_cast<size_t>(kv_head)];
  }
  // The plan of a preference; null: none of that name.
  const SpendPlan* FindSpend(const std::string& prefer) const;
};

// Parts per million as the shortest decimal: "0.2", "-0.000001", "1".
std::string PpmText(int64_t ppm);
// How many heads have each type, in the order of HeadType.
std::array<int32_t, kNumHeadTypes> CountHeadTypes(const HeadMap& map);

// Everything a map has to satisfy beyond its syntax: shapes, ranges, orders, names, sums. The
// first fault as InvalidArgument with its JSON path, what was got and what wanted.
Status ValidateHeadMap(const HeadMap& map);

// JSON text of schema headmap/1 (head_map_json.cc). Parse is strict: unknown or repeated members,
// numbers out of range, more than six decimals, a wrong hash and every truncation (the last line
// feed's too) are refused as InvalidArgument with path, got and wanted; white space and the order
// of members are free. Write takes a valid map, is canonical (sorted members, one trailing line
// feed) and writes the hash: equal maps give equal bytes, whatever `map.hash` holds.
inline constexpr size_t kMaxHeadMapBytes = size_t{64} << 20;
StatusOr<HeadMap> ParseHeadMap(const std::string& text);
std::string WriteHeadMap(const HeadMap& map);

// ParseHeadMap of a file. Errors name the path; NotFound where there is no such file.
StatusOr<HeadMap> LoadHeadMap(const std::string& path);

}  // namespace headroom::engine
