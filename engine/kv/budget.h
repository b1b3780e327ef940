// What a request may spend: two decoupled budgets and the settings around them.
//
// Ratios are integers in parts per million from the moment they arrive; every count below is exact
// integer arithmetic (design: floor(ppm * N / 1e6)).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/ops.h"

namespace headroom::engine {

inline constexpr int64_t kPpm = 1'000'000;

// floor(ppm * count / 1e6) without overflow for count < 2^43.
constexpr int64_t ScalePpm(int64_t ppm, int64_t count) { return ppm * count / kPpm; }

enum class KvDecode : uint8_t { kGrow, kTyped };

// What binds under `adaptive`: rho, the head map's budgets at theta, or the smaller of both.
enum class KvMode : uint8_t { kBudget, kRecovery, kBoth };
// Over what `adaptive` spends: one pool of all layers, or each layer's own.
enum class KvScope : uint8_t { kModel, kLayer };

// Settings of single policies (`kv_options` on the wire). Each policy reads its own and ignores the
// others; docs/kv-policies.md says what they do.
struct KvPolicyOptions {
  int64_t alpha_ppm = 200'000;         // adakv: share of a head's even part that is safe
  int64_t recent_share_ppm = 500'000;  // h2o: share of the budget that is recent
  bool count_normalised = false;       // h2o: sums are divided by the rows that see the column
  int64_t fraction_ppm = 300'000;      // fastgen: heavy columns and window, each a share of N
  bool all_rows = false;               // fastgen: choose and measure on every row, as the paper
  int32_t filter_layer = -1;           // gemfilter: layer whose scores choose; -1: max(0, L/2 - 3)
  bool flat = false;                   // pyramidinfer: every layer keeps the same share
  uint64_t seed = 0;                   // random
  // adaptive, instead of the map's own: the dense heads' share of the elastic pool, and the most
  // that quotas of windows and punctuation take of what the mandatory sets leave (half at most).
  std::optional<int64_t> dense_share_ppm;
  std::optional<int64_t> local_share_ppm;
};

// The applied request: names and defaults are resolved before it gets here.
struct KvPolicySpec {
  std::string policy = "full";
  int64_t retention_ppm = kPpm;             // rho
  int64_t tsp_ppm = kPpm;                   // tau; 1 = off
  std::optional<int64_t> retention_tokens;  // mean per layer and head; the smaller wins
  std::optional<int64_t> tsp_tokens;        // the smaller wins
  int64_t recovery_ppm = 950'000;           // theta, of the policies that have a mass target
  int32_t window = 8;
  bool window_raw = false;  // the window counts from the prompt's end, not from the last content
  kernels::PoolKind pool = kernels::PoolKind::kMax;
  int32_t pool_width = 7;
  int32_t sink_tokens = 4;
  int32_t min_prompt = 512;           // shorter prompts keep everything
  int32_t tsp_min_prompt = 2048;      // shorter prompts run whole
  KvDecode decode = KvDecode::kGrow;  // kTyped for streaming
  bool strict = false;
  KvMode mode = KvMode::kBudget;    // adaptive
  KvScope scope = KvScope::kModel;  // adaptive
  bool head_check = false;          // adaptive: held-out rows may escalate a head
  KvPolicyOptions options;
};

// What a token is, whatever stands around it.
enum class TokenClass : uint8_t { kOther, kSpecial, kPunctuation };

// What a policy needs to know of one prompt; the same for every layer.
struct PromptInfo {
  int32_t num_tokens = 0;   // N
  int32_t content_end = 0;  // one past the last content token; N without template information
  // [N]; null: nothing is known, every token is kOther.
  std::shared_ptr<const std::vector<TokenClass>> classes = nullptr;
};

// Entries per (layer, KV head) that rho and kv_retention_tokens leave of an N-token prompt: the
// smaller of floor(rho * N) and the absolute form. N when neither binds.
int64_t RetentionEntries(const KvPolicySpec& spec, int64_t num_tokens);
// Rows that tau and tsp_tokens let through above the TSP layer, before protection; N when neither
// binds.
int64_t TspRows(const KvPolicySpec& spec, int64_t num_tokens);

// Whether the budget binds but the prompt is strictly shorter than its threshold and left whole.
bool RetentionIsShort(const KvPolicySpec& spec, int64_t num_tokens);
bool TspIsShort(const KvPolicySpec& spec, int64_t num_tokens);
// Whether the budget binds and is applied.
bool RetentionApplies(const KvPolicySpec& spec, int64_t num_tokens);
bool TspApplies(const KvPolicySpec& spec, int64_t num_tokens);

// The ratio that acts on an N-token prompt, in ppm: 1 where nothing is applied, the absolute form's
// share of N (rounded down) where that is the smaller.
int64_t AppliedRetentionPpm(const KvPolicySpec& spec, int64_t num_tokens);
int64_t AppliedTspPpm(const KvPolicySpec& spec, int64_t num_tokens);

// The last content rows and every row after them: what the observation window holds. At least 1
// and at most N for N >= 1.
int32_t WindowRows(const KvPolicySpec& spec, const PromptInfo& prompt);
// Sinks that the prompt has.
int32_t SinkRows(const KvPolicySpec& spec, const PromptInfo& prompt);

// What became of a request's budget. Counts are of prompt (token, layer, KV head) triples after
// prefill; generated tokens count in none of them.
struct KvReceipt {
  std::string policy;
  int64_t retention_ppm = kPpm;  // applied: 1 for a short prompt, the absolute form's share of N
  int64_t tsp_ppm = kPpm;        // where that binds; `floor` among the reasons: more was kept
  std::vector<std::string> reasons;  // short_prompt, floor, no_head_map, head_check
  int64_t prompt_tokens = 0;
  int64_t propagated_tokens = 0;  // rows that ran above the TSP layer; N without TSP
  int64_t entries = 0;
  int64_t entries_full = 0;
  std::vector<int32_t> head_entries;  // [num_layers, num_kv_heads]; their sum is `entries`
  int64_t bytes = 0;  // entries * 2 * head_dim * element size
  int64_t bytes_full = 0;
  int64_t pages = 0;            // page count after prefill, rounding included
  int32_t escalated_heads = 0;  // that kv_head_check gave more; `head_check` among the reasons
  double compress_ms = 0.0;     // scoring, selection and compaction
};

}  // namespace headroom::engine
