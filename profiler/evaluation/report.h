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

struct EvalReport {
  EvalSettings settings;
  std::vector<EvalRow> rows;  // rows[0] is the reference
  std::optional<FidelityReport> fidelity;
};

// For people: fixed-width text.
std::string TableText(const EvalReport& report);
// The schema "headroom-eval/1" of docs/evaluation.md.
std::string JsonText(const EvalReport& report);

}  // namespace headroom::profiler
