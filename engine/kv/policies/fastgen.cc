// fastgen: every KV head of every prompt gets the cheapest of five sets that keeps its attention:
// special tokens, with punctuation, with heavy columns, with a local window, everything
// [FastGen, 2310.01801].
//
// A head climbs the ladder until the kept mass of its neediest query head is at least theta
// (kv_recovery). With f = kv_options.fraction: ceil(f * N) heavy columns by column sum over the
// rows that see them, outside the other sets; a window of max(1, floor(f * N)).
//
// Deviations from the paper and from AnswerDotAI/cold-compress:
// - by default the heavy columns come from three of four of the last 128 rows and the mass from the
//   fourth: at O(128 N) per head, and not measured on the rows that chose. kv_options.rows "all" is
//   the papers' form, both on all rows, at O(N^2);
// - grouped queries: one decision per KV head, by the minimum over its query heads (paper: none,
//   cold-compress: mean of the queries);
// - "full" always passes (cold-compress falls back to "special" where rounding keeps even full
//   below theta);
// - punctuation by Unicode and newlines, special tokens by the tokenizer's own list;
// - the first kv_sink_tokens count as special; prompts below kv_min_prompt are left whole;
// - typed decode keeps every head to its size and a page or two of recent tokens, and drops a page
//   at once; heads that keep everything grow. By default all grow.
#include <algorithm>

#include "engine/kv/policies/policies.h"
#include "engine/kv/policies/policy_util.h"

namespace headroom::engine {
namespace {

constexpr int32_t kProfiledRows = 128;

class FastGenPolicy final : public KvPolicy {
 public:
  std::string name() const override { return "fastgen"; }
  bool has_recovery() const override { return true; }

  Status Validate(const KvPolicySpec& spec) const override {
    HEADROOM_RETURN_IF_ERROR(ValidateRanges(spec));
    HEADROOM_RETURN_IF_ERROR(RefuseTsp(name(), spec));
    if (spec.retention_ppm < kPpm || spec.retention_tokens.has_value()) {
      return InvalidArgument(
          "kv_retention: policy fastgen keeps what kv_recovery needs; got a retention, wanted "
          "kv_recovery alone");
    }
    return OkStatus();
  }

  std::vector<std::string> OptionNames() const override { return {"fraction", "rows"}; }

  bool LeavesWhole(const KvPolicySpec& spec, const PromptInfo& prompt) const override {
    return prompt.num_tokens < spec.min_prompt;
  }

  ScoreNeeds Needs(const KvPolicySpec& spec, const KvModelShape& shape,
                   const PromptInfo& prompt) const override {
    ScoreNeeds needs;
    if (LeavesWhole(spec, prompt)) {
      return needs;
    }
    const int32_t local = LocalSlots(spec, prompt.num_tokens);
    if (spec.options.all_rows) {
      needs.columns = {
          {.last_rows = prompt.num_tokens, .per_query_head = true, .near_slots = local}};
      return needs;
    }
    needs.window_rows = std::min(kProfiledRows, prompt.num_tokens);
    const ColumnNeeds all = {
        .last_rows = needs.window_rows, .per_query_head = true, .near_slots = local};
    if (needs.window_rows < 4) {
      needs.columns = {all};  // no row to spare
      return needs;
    }
    needs.columns = {{.last_rows = needs.window_rows, .rows_of_four = 0b0111}, all};
    needs.columns.back().rows_of_four = 0b1000;
    return needs;
  }

  LayerPlan PlanPrefill(const KvPolicySpec& spec, const KvModelShape& shape,
                        const PromptInfo& prompt, int32_t layer, int32_t num_slots) const override {
    if (LeavesWhole(spec, prompt)) {
      return {};
    }
    const auto scaled = int64_t{spec.options.fraction_ppm} * prompt.num_tokens;
    const auto heavy = static_cast<int32_t>((scaled + kPpm - 1) / kPpm);
    HeadPlan head = {.num_entries = num_slots,
                     .sink_slots = SinkRows(spec, prompt),
                     .score = ScoreKind::kColumnMean,
                     .mass_target_ppm = spec.recovery_ppm};
    head.rungs = {{.special = true},
                  {.special = true, .punctuation = true},
                  {.special = true, .punctuation = true, .heavy_entries = heavy},
                  {.special = true,
                   .punctuation = true,
                   .heavy_entries = heavy,
                   .local_slots = LocalSlots(spec, prompt.num_tokens)}};
    if (spec.decode == KvDecode::kTyped) {
      SetTypedDecode(prompt.num_tokens, head.rungs);
    }
    LayerPlan plan;
    plan.keep_all = false;
    plan.heads.assign(static_cast<size_t>(shape.num_kv_heads), head);
    return plan;
  }

 private:
  // A head stays on its rung. Special tokens are kept, and punctuation where the rung keeps it, of
  // the answer too, to a twentieth of the prompt; behind them the most recent go on as a ring, or
  // heavy columns compete. The local rung keeps its heavy columns.
  static void SetTypedDecode(int32_t num_tokens, std::vector<Rung>& rungs) {
    for (Rung& rung : rungs) {
      const bool by_score = rung.heavy_entries > 0 && rung.local_slots == 0;
      rung.typed.kind = by_score ? DecodeKind::kLowestScore : DecodeKind::kRing;
      rung.typed.pins_special = rung.special;
      rung.typed.pins_punctuation = rung.punctuation;
      rung.typed.free_tail = by_score ? -1 : rung.local_slots;
      rung.typed.max_pinned_rows = TypedPinnedRows(num_tokens);
    }
  }

  static int32_t LocalSlots(const KvPolicySpec& spec, int32_t num_tokens) {
    return static_cast<int32_t>(
        std::max<int64_t>(1, ScalePpm(spec.options.fraction_ppm, num_tokens)));
  }
};

}  // namespace

std::unique_ptr<KvPolicy> MakeFastGenPolicy() { return std::make_unique<FastGenPolicy>(); }

}  // namespace headroom::engine
