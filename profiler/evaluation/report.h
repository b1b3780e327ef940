// What an evaluation found. Plain data; report_table, report_json and report_html write it down.
//
// Nothing here depends on the time, the machine's speed or the number of threads: the same inputs
// give the same bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "profiler/evaluation/bootstrap.h"
#include "profiler/evaluation/cache_set.h"
#include "profiler/evaluation/eval_row.h"

namespace headroom::profiler {

// What identifies the run, in the order in which it is shown.
struct EvalSettings {
  std::string model;
  std::string backend;  // "cpu"
  int32_t num_layers = 0;
  int32_t num_kv_heads = 0;
  int32_t group_size = 0;
  int32_t head_dim = 0;
  int32_t tsp_layer = 0;
  int32_t num_resamples = 0;
  uint64_t seed = 0;
  std::vector<std::pair<std::string, std::string>> flags;  // those that change numbers
};

// A document as it was measured with the reference.
struct DocumentInfo {
  std::string id;
  std::string source;
  int32_t num_tokens = 0;     // prefix and continuation
  int32_t prefix_tokens = 0;  // compressed
  int32_t num_scored = 0;     // tokens of the continuation behind its first
  int32_t num_key_tokens = 0;
  double full_nll = 0.0;  // mean over the scored tokens
};

// One row on one document; means are over the scored tokens.
struct DocumentScore {
  double delta_nll = 0.0;  // mean NLL minus the reference's, nats
  double mean_kl = 0.0;    // KL(full || compressed), nats
  double p99_kl = 0.0;     // nearest rank
  double top1 = 0.0;       // share of tokens whose likeliest next token is the reference's
  // Sums over the key tokens: a document with many counts more than one with few.
  double key_delta_nll_sum = 0.0;
  int32_t key_agreements = 0;
  KvCost cost;
};

struct FidelitySummary {
  Interval delta_nll;
  Interval ppl_ratio;  // exp(delta_nll)
  Interval mean_kl;
  Interval p99_kl;
  Interval top1;
  std::optional<Interval> key_delta_nll;  // nothing when no document has a key token
  std::optional<Interval> key_top1;
  double physical_bytes = 0.0;  // means over the documents
  double physical_bytes_end = 0.0;
  double nominal_bytes = 0.0;
  double physical_share = 0.0;  // of the reference's physical bytes
};

// Documents of one length, or all of them.
struct FidelityGroup {
  int32_t num_tokens = 0;          // 0: all lengths
  std::vector<int32_t> documents;  // indices
  int64_t num_key_tokens = 0;
  double full_ppl = 0.0;
  std::vector<std::optional<FidelitySummary>> rows;  // [rows]; nothing: the row does not run
};

struct FidelityReport {
  int32_t continuation_tokens = 0;
  std::vector<DocumentInfo> documents;
  std::vector<std::vector<DocumentScore>> scores;  // [rows][documents]; empty: does not run
  std::vector<FidelityGroup> groups;  // by length ascending; then all, when lengths differ
};

// Whether the question is in the prompt when it is compressed.
enum class Protocol : uint8_t { kAware, kAgnostic };
std::string ProtocolName(Protocol protocol);

// One row on one prompt.
struct NeedleScore {
  // Exact tasks: the whole answer, greedy. Text tasks: the generated text contains the answer.
  bool right = false;
  // Exact tasks: the answer behind its first token, which is given.
  bool right_after_first = false;
  int32_t rank = 0;     // of the right candidate by sum of log p, 1 = best; 0: not ranked
  double margin = 0.0;  // its sum minus the best other one's
  KvCost cost;
};

// Where a prompt belongs in the heat map.
struct NeedleInfo {
  std::string id;
  int32_t length = 0;
  double depth = 0.0;
  int32_t num_candidates = 0;
};

struct NeedleSummary {
  Interval right;       // shares of prompts
  Interval difference;  // to the reference, paired
  double mcnemar_p = 1.0;
  double holm_p = 1.0;  // mcnemar_p adjusted for all rows beside the reference
  std::optional<Interval> right_after_first;  // exact tasks
  std::optional<Interval> rank_accuracy;      // share ranked first; ranked prompts only
  std::optional<Interval> reciprocal_rank;
  std::optional<Interval> margin;
  double physical_bytes = 0.0;
  double nominal_bytes = 0.0;
  double physical_share = 0.0;
  // [depth bin][length] right prompts; the totals are the report's.
  std::vector<std::vector<int32_t>> heat;
};

inline constexpr int32_t kDepthBins = 5;

// One task under one protocol.
struct NeedleReport {
  std::string task;
  Protocol protocol = Protocol::kAware;
  bool is_text = false;
  std::vector<NeedleInfo> prompts;
  std::vector<std::vector<NeedleScore>> scores;    // [rows][prompts]; empty: does not run
  std::vector<std::optional<NeedleSummary>> rows;  // [rows]
  std::vector<int32_t> lengths;                    // columns of the heat maps, ascending
  std::vector<std::vector<int32_t>> totals;        // [depth bin][length] prompts
};

struct EvalReport {
  EvalSettings settings;
  std::vector<EvalRow> rows;  // rows[0] is the reference
  std::optional<FidelityReport> fidelity;
  std::vector<NeedleReport> needles;
};

// For people: fixed-width text.
std::string TableText(const EvalReport& report);
// The schema "headroom-eval/1" of docs/evaluation.md.
std::string JsonText(const EvalReport& report);
// One page without scripts or anything fetched: Pareto plots, heat maps, tables. Follows the
// reader's light or dark scheme; shapes and numbers say whatever colours say.
std::string HtmlText(const EvalReport& report);

}  // namespace headroom::profiler
