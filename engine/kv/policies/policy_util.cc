#include "engine/kv/policies/policy_util.h"

#include <algorithm>

namespace headroom::engine {
namespace {

Status InRange(const char* field, int64_t got, int64_t low, int64_t high) {
  if (got < low || got > high) {
    return InvalidArgument("{}: got {}, wanted {} to {}", field, got, low, high);
  }
  return OkStatus();
}

constexpr int64_t kMaxCount = INT32_MAX;

}  // namespace

Status ValidateRanges(const KvPolicySpec& spec) {
  HEADROOM_RETURN_IF_ERROR(InRange("kv_retention (ppm)", spec.retention_ppm, 1, kPpm));
  HEADROOM_RETURN_IF_ERROR(InRange("tsp_ratio (ppm)", spec.tsp_ppm, 1, kPpm));
  HEADROOM_RETURN_IF_ERROR(
      InRange("kv_retention_tokens", spec.retention_tokens.value_or(1), 1, INT64_MAX));
  HEADROOM_RETURN_IF_ERROR(InRange("tsp_tokens", spec.tsp_tokens.value_or(1), 1, INT64_MAX));
  HEADROOM_RETURN_IF_ERROR(InRange("kv_window", spec.window, 1, 256));
  HEADROOM_RETURN_IF_ERROR(InRange("kv_sink_tokens", spec.sink_tokens, 0, 64));
  HEADROOM_RETURN_IF_ERROR(InRange("kv_pool_width", spec.pool_width, 1, 31));
  if (spec.pool_width % 2 == 0) {
    return InvalidArgument("kv_pool_width: got {}, wanted an odd number", spec.pool_width);
  }
  HEADROOM_RETURN_IF_ERROR(InRange("kv_recovery (ppm)", spec.recovery_ppm, 1, kPpm - 1));
  const KvPolicyOptions& options = spec.options;
  HEADROOM_RETURN_IF_ERROR(InRange("kv_options.alpha (ppm)", options.alpha_ppm, 0, kPpm));
  HEADROOM_RETURN_IF_ERROR(
      InRange("kv_options.recent_share (ppm)", options.recent_share_ppm, 0, kPpm));
  HEADROOM_RETURN_IF_ERROR(InRange("kv_options.fraction (ppm)", options.fraction_ppm, 1, kPpm));
  HEADROOM_RETURN_IF_ERROR(InRange("kv_options.filter_layer", options.filter_layer, -1, kMaxCount));
  HEADROOM_RETURN_IF_ERROR(
      InRange("kv_options.dense_share (ppm)", options.dense_share_ppm.value_or(0), 0, kPpm));
  HEADROOM_RETURN_IF_ERROR(
      InRange("kv_options.local_share (ppm)", options.local_share_ppm.value_or(0), 0, kPpm / 2));
  HEADROOM_RETURN_IF_ERROR(InRange("kv_min_prompt", spec.min_prompt, 0, kMaxCount));
  return InRange("tsp_min_prompt", spec.tsp_min_prompt, 0, kMaxCount);
}

Status RefuseRetention(const std::string& policy, const KvPolicySpec& spec) {
  if (spec.retention_ppm < kPpm) {
    return InvalidArgument("kv_retention: policy {} keeps everything; got {}, wanted 1", policy,
                           static_cast<double>(spec.retention_ppm) / kPpm);
  }
  if (spec.retention_tokens.has_value()) {
    return InvalidArgument(
        "kv_retention_tokens: policy {} keeps everything; got {}, wanted the field unset", policy,
        *spec.retention_tokens);
  }
  return OkStatus();
}

Status RefuseTsp(const std::string& policy, const KvPolicySpec& spec) {
  if (spec.tsp_ppm < kPpm) {
    return InvalidArgument("tsp_ratio: policy {} runs every row; got {}, wanted 1", policy,
                           static_cast<double>(spec.tsp_ppm) / kPpm);
  }
  if (spec.tsp_tokens.has_value()) {
    return InvalidArgument("tsp_tokens: policy {} runs every row; got {}, wanted the field unset",
                           policy, *spec.tsp_tokens);
  }
  return OkStatus();
}

Status RefuseTypedDecode(const std::string& policy, const KvPolicySpec& spec) {
  if (spec.decode == KvDecode::kTyped) {
    return InvalidArgument("kv_decode: policy {} evicts nothing in decode; got typed, wanted grow",
                           policy);
  }
  return OkStatus();
}

std::vector<PrefillPhase> SinglePhase(const KvModelShape& shape) {
  return {{.layer_begin = 0, .layer_end = shape.num_layers, .selects_rows = false}};
}

ScoreNeeds WindowNeeds(int32_t window_rows) {
  ScoreNeeds needs;
  needs.window_rows = window_rows;
  return needs;
}

std::vector<PrefillPhase> TspPhases(const KvPolicySpec& spec, const KvModelShape& shape,
                                    const PromptInfo& prompt) {
  if (!TspApplies(spec, prompt.num_tokens) ||
      PlanTspRows(spec, prompt).num_rows == prompt.num_tokens) {
    return SinglePhase(shape);
  }
  return {{.layer_begin = 0, .layer_end = shape.tsp_layer, .selects_rows = true},
          {.layer_begin = shape.tsp_layer, .layer_end = shape.num_layers, .selects_rows = false}};
}

TspPlan PlanTspRows(const KvPolicySpec& spec, const PromptInfo& prompt) {
  TspPlan plan;
  plan.sink_slots = SinkRows(spec, prompt);
  plan.recent_slots = WindowRows(spec, prompt);
  const int64_t protected_rows =
      std::min<int64_t>(prompt.num_tokens, int64_t{plan.sink_slots} + plan.recent_slots);
  const int64_t rows = TspRows(spec, prompt.num_tokens);
  plan.num_rows = static_cast<int32_t>(std::max(rows, protected_rows));
  plan.overran = rows < protected_rows;
  return plan;
}

HeadBudget UniformHeadBudget(const KvPolicySpec& spec, const PromptInfo& prompt,
                             int32_t num_slots) {
  HeadBudget budget;
  budget.sink_slots = std::min(SinkRows(spec, prompt), num_slots);
  budget.window_slots = std::min(WindowRows(spec, prompt), num_slots);
  const int64_t floor_entries =
      std::min<int64_t>(num_slots, int64_t{budget.sink_slots} + budget.window_slots);
  const int64_t entries = std::min<int64_t>(RetentionEntries(spec, prompt.num_tokens), num_slots);
  budget.num_entries = static_cast<int32_t>(std::max(entries, floor_entries));
  budget.overran = entries < floor_entries;
  return budget;
}

LayerPlan SameForAllHeads(const KvModelShape& shape, const HeadPlan& head, int32_t num_slots) {
  LayerPlan plan;
  plan.keep_all = head.num_entries == num_slots;
  if (!plan.keep_all) {
    plan.heads.assign(static_cast<size_t>(shape.num_kv_heads), head);
  }
  return plan;
}

LayerPlan HeavyHitterPlan(const KvModelShape& shape, const HeavyHitterBudget& budget,
                          ScoreKind score, int32_t num_slots) {
  const int64_t wanted = std::min<int64_t>(budget.entries, num_slots);
  const int64_t least = std::clamp<int64_t>(int64_t{budget.sinks} + budget.recent, 1, num_slots);
  LayerPlan plan = SameForAllHeads(shape,
                                   {.num_entries = static_cast<int32_t>(std::max(wanted, least)),
                                    .sink_slots = budget.sinks,
                                    .recent_slots = budget.recent,
                                    .score = score},
                                   num_slots);
  plan.overran = wanted < least;
  return plan;
}

DecodePlan LowestScoreDecode(const LayerPlan& plan, int32_t kv_head, DecodeScore score) {
  if (plan.keep_all) {
    return {};
  }
  const HeadPlan& head = plan.heads[static_cast<size_t>(kv_head)];
  DecodePlan decode;
  decode.kind = DecodeKind::kLowestScore;
  decode.sink_slots = head.sink_slots;
  decode.recent_slots = std::max(1, head.recent_slots);  // the newest token always stays
  decode.capacity_slots = std::max(head.num_entries, decode.sink_slots + decode.recent_slots);
  decode.score = score;
  return decode;
}

int32_t TypedPinnedRows(int32_t num_tokens) {
  return std::max(kernels::kPageSize, num_tokens / 20);
}

LayerPlan UniformWindowPlan(const KvPolicySpec& spec, const KvModelShape& shape,
                            const PromptInfo& prompt, int32_t num_slots) {
  if (!RetentionApplies(spec, prompt.num_tokens)) {
    return {};
  }
  const HeadBudget budget = UniformHeadBudget(spec, prompt, num_slots);
  LayerPlan plan = SameForAllHeads(shape,
                                   {.num_entries = budget.num_entries,
                                    .sink_slots = budget.sink_slots,
                                    .recent_slots = budget.window_slots,
                                    .score = ScoreKind::kWindow},
                                   num_slots);
  plan.overran = budget.overran;
  return plan;
}

}  // namespace headroom::engine
