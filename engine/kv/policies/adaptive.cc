// adaptive: the head map spends the budget of FastKV [2502.01068 v3] head by head.
//
// Every head keeps the mandatory tokens: sinks, special tokens, the last max(window, 8); where the
// budget is large also the prompt's beginning, its lead (docs/adr/0007). Local and punct heads get
// quotas that do not depend on rho. The rest is elastic: dense heads are filled in their order up
// to the plan's dense share, at small budgets with content before punctuation; the others get some
// of the newest tokens, and within a layer the best pairs of head and slot, by weight times window
// score, get what the layer was given (adaptive_plan.h). Kept sets nest in rho at fixed tau. Under
// mode recovery every head gets what its type needs at the map's theta instead, under both no more
// than that. TSP as in fastkv, but it also protects what later heads are there for: special tokens,
// windows, punctuation.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/kv/policies/adaptive_heads.h"
#include "engine/kv/policies/adaptive_plan.h"
#include "engine/kv/policies/adaptive_tokens.h"
#include "engine/kv/policies/policies.h"
#include "engine/kv/policies/policy_util.h"

namespace headroom::engine {
namespace {

// Held-out rows before the window, and how far below theta a head's mass on them may lie.
constexpr int32_t kCheckRows = 32;
constexpr int64_t kCheckSlackPpm = 30'000;
// Dense heads without a rank stand behind those with one, by probe score.
constexpr int64_t kUnranked = int64_t{1} << 40;
// Where the map has no plan for a preference.
constexpr int64_t kDefaultDenseSharePpm = 500'000;

class AdaptivePolicy final : public KvPolicy {
 public:
  AdaptivePolicy(std::shared_ptr<const HeadMap> map, const std::string& prefer,
                 const AdaptiveSettings& settings)
      : map_(std::move(map)), settings_(settings) {
    HEADROOM_CHECK(map_ != nullptr &&
                   map_->heads.size() == static_cast<size_t>(map_->model.num_layers) *
                                             static_cast<size_t>(map_->model.num_kv_heads));
    for (const SpendPlan& plan : map_->spend) {
      if (plan.prefer == prefer) {
        spend_ = plan;
      }
    }
    if (spend_.points.empty()) {
      spend_.points = {{.retention_ppm = kPpm, .dense_share_ppm = kDefaultDenseSharePpm}};
    }
  }

  std::string name() const override { return "adaptive"; }

  Status Validate(const KvPolicySpec& spec) const override {
    HEADROOM_RETURN_IF_ERROR(ValidateRanges(spec));
    if (spec.mode != KvMode::kBudget && spec.recovery_ppm != map_->profile.theta_ppm) {
      return InvalidArgument(
          "kv_recovery: got {}; budgets of the head map are for {}, derive a map for another "
          "target",
          PpmText(spec.recovery_ppm), PpmText(map_->profile.theta_ppm));
    }
    if (spec.head_check && spec.strict) {
      return InvalidArgument(
          "kv_head_check: heads that are found to need more exceed the budget, which kv_strict "
          "does not let them; got both, wanted one");
    }
    return OkStatus();
  }

  Status ValidateShape(const KvPolicySpec& spec, const KvModelShape& shape) const override {
    if (shape.num_layers != map_->model.num_layers ||
        shape.num_kv_heads != map_->model.num_kv_heads) {
      return InvalidArgument(
          "kv_policy: the head map of policy adaptive has {} layers of {} KV heads; the model has "
          "{} of {}",
          map_->model.num_layers, map_->model.num_kv_heads, shape.num_layers, shape.num_kv_heads);
    }
    return OkStatus();
  }

  std::vector<std::string> OptionNames() const override { return {"dense_share", "local_share"}; }

  bool LeavesWhole(const KvPolicySpec& spec, const PromptInfo& prompt) const override {
    return spec.mode == KvMode::kBudget ? RetentionIsShort(spec, prompt.num_tokens)
                                        : prompt.num_tokens < spec.min_prompt;
  }

  ScoreNeeds Needs(const KvPolicySpec& spec, const KvModelShape& shape,
                   const PromptInfo& prompt) const override {
    const bool scores = Drops(spec, prompt.num_tokens) || TspApplies(spec, prompt.num_tokens);
    ScoreNeeds needs = WindowNeeds(scores ? WindowRows(spec, prompt) : 0);
    if (spec.head_check && Drops(spec, prompt.num_tokens)) {
      needs.check_rows = kCheckRows;
      needs.check_near = std::max(WindowRows(spec, prompt), settings_.recent_tokens);
    }
    return needs;
  }

  std::vector<PrefillPhase> PlanPhases(const KvPolicySpec& spec, const KvModelShape& shape,
                                       const PromptInfo& prompt) const override {
    if (!TspApplies(spec, prompt.num_tokens) ||
        PlanTsp(spec, shape, prompt, 0).num_rows == prompt.num_tokens) {
      return SinglePhase(shape);
    }
    return {{.layer_begin = 0, .layer_end = shape.tsp_layer, .selects_rows = true},
            {.layer_begin = shape.tsp_layer, .layer_end = shape.num_layers}};
  }

  TspPlan PlanTsp(const KvPolicySpec& spec, const KvModelShape& shape, const PromptInfo& prompt,
                  int32_t phase) const override {
    return ProtectRows(TokensOf(spec, prompt), TspRows(spec, prompt.num_tokens),
                       LaterNeeds(shape, prompt.num_tokens));
  }

  LayerPlan PlanPrefill(const KvPolicySpec& spec, const KvModelShape& shape,
                        const PromptInfo& prompt, int32_t layer, int32_t num_slots) const override {
    std::vector<int32_t> layer_slots(static_cast<size_t>(shape.num_layers), prompt.num_tokens);
    if (PlanPhases(spec, shape, prompt).size() > 1) {
      std::fill(layer_slots.begin() + shape.tsp_layer + 1, layer_slots.end(),
                PlanTsp(spec, shape, prompt, 0).num_rows);
    }
    HEADROOM_CHECK(layer_slots[static_cast<size_t>(layer)] == num_slots);
    return PlanLayers(spec, shape, prompt, layer_slots)[static_cast<size_t>(layer)];
  }

  std::vector<LayerPlan> PlanLayers(const KvPolicySpec& spec, const KvModelShape& shape,
                                    const PromptInfo& prompt,
                                    const std::vector<int32_t>& layer_slots) const override {
    std::vector<LayerPlan> plans(static_cast<size_t>(shape.num_layers));
    if (!Drops(spec, prompt.num_tokens)) {
      return plans;
    }
    const PromptTokens tokens = TokensOf(spec, prompt);
    const TspPlan selection = PlanTsp(spec, shape, prompt, 0);
    std::vector<AdaptiveHead> heads;
    std::vector<HeadQuota> quotas;
    for (int32_t layer = 0; layer < shape.num_layers; ++layer) {
      const bool selected = layer_slots[static_cast<size_t>(layer)] < prompt.num_tokens;
      for (int32_t head = 0; head < shape.num_kv_heads; ++head) {
        const HeadEntry& entry = map_->head(layer, head);
        quotas.push_back(QuotaOf(entry, tokens, layer_slots[static_cast<size_t>(layer)],
                                 selected ? &selection : nullptr));
        heads.push_back(Describe(spec.mode, entry, quotas.back(), layer,
                                 layer_slots[static_cast<size_t>(layer)], tokens, selected));
      }
    }
    const AdaptiveSplit split = spec.mode == KvMode::kRecovery
                                    ? GiveAll(heads, shape.num_layers)
                                    : Split(spec, shape, prompt, tokens, layer_slots, heads);
    size_t index = 0;
    for (int32_t layer = 0; layer < shape.num_layers; ++layer) {
      LayerPlan& plan = plans[static_cast<size_t>(layer)];
      plan.pool = KvPool::kLayer;
      plan.keep_all = false;
      plan.overran = split.overran;
      plan.pool_entries = static_cast<int32_t>(split.contested[static_cast<size_t>(layer)]);
      for (int32_t head = 0; head < shape.num_kv_heads; ++head, ++index) {
        plan.heads.push_back(PlanHead(map_->head(layer, head), tokens, quotas[index],
                                      split.quota[index], split.lead[index], split.own[index],
                                      heads[index]));
        plan.heads.back().content_first = split.content_first[index] != 0;
        if (spec.decode == KvDecode::kTyped) {
          plan.heads.back().typed = TypedOf(map_->head(layer, head), prompt.num_tokens);
        }
        if (spec.head_check) {
          SetCheck(spec, heads[index], split.quota[index], prompt.num_tokens,
                   layer_slots[static_cast<size_t>(layer)], plan.heads.back());
        }
        plan.pool_entries += plan.heads.back().safe_entries;
      }
      if (plan.pool_entries == shape.num_kv_heads * layer_slots[static_cast<size_t>(layer)]) {
        plan = {.overran = split.overran};
      }
    }
    return plans;
  }

 private:
  // Whether entries may go. Budgets of the map bind at any retention.
  static bool Drops(const KvPolicySpec& spec, int32_t num_tokens) {
    return spec.mode == KvMode::kBudget ? RetentionApplies(spec, num_tokens)
                                        : num_tokens >= spec.min_prompt;
  }

  // Windows and punctuation of a fixed head, outside the mandatory tokens.
  struct HeadQuota {
    int32_t newest = 0;
    int32_t punctuation = 0;
  };

  PromptTokens TokensOf(const KvPolicySpec& spec, const PromptInfo& prompt) const {
    return PromptTokens(prompt, SinkRows(spec, prompt),
                        std::max(WindowRows(spec, prompt), settings_.recent_tokens));
  }

  // What the heads above the TSP layer are there for.
  LaterHeads LaterNeeds(const KvModelShape& shape, int32_t num_tokens) const {
    LaterHeads later;
    for (int32_t layer = shape.tsp_layer + 1; layer < shape.num_layers; ++layer) {
      for (int32_t head = 0; head < shape.num_kv_heads; ++head) {
        const HeadEntry& entry = map_->head(layer, head);
        later.window = std::max(later.window, LocalWindow(map_->profile, entry, num_tokens));
        later.punctuation |= KeepsPunctuation(entry);
      }
    }
    return later;
  }

  // `selection`: of the rows that this layer sees; null: it sees all.
  HeadQuota QuotaOf(const HeadEntry& entry, const PromptTokens& tokens, int32_t num_slots,
                    const TspPlan* selection) const {
    HeadQuota quota;
    const int32_t reach = selection == nullptr ? tokens.num_tokens() : selection->recent_slots;
    const int32_t window = std::min(LocalWindow(map_->profile, entry, tokens.num_tokens()), reach);
    quota.newest = tokens.NumFree(window);
    if (KeepsPunctuation(entry)) {
      const int32_t there = tokens.NumPunctuation(reach) - tokens.NumPunctuation(window) +
                            (selection == nullptr ? 0 : selection->punctuation_rows);
      quota.punctuation =
          std::min(there, static_cast<int32_t>(ScalePpm(kPunctuationSharePpm, num_slots)));
    }
    return quota;
  }

  AdaptiveHead Describe(KvMode mode, const HeadEntry& entry, const HeadQuota& quota, int32_t layer,
                        int64_t num_slots, const PromptTokens& tokens, bool selected) const {
    const int64_t room = num_slots - tokens.num_mandatory();
    const int32_t num_tokens = tokens.num_tokens();
    const HeadType type = SpentType(entry);
    AdaptiveHead head;
    head.layer = layer;
    head.elastic = IsElastic(type);
    head.dense = type == HeadType::kDense;
    head.room = room;
    head.quota = head.elastic ? 0 : int64_t{quota.newest} + quota.punctuation;
    if (mode == KvMode::kBudget) {
      head.lead = std::min<int64_t>(settings_.oldest_entries, room - head.quota);
    }
    head.floor = head.elastic ? std::min<int64_t>(settings_.floor_entries, room - head.lead) : 0;
    head.newest = std::min<int64_t>(settings_.newest_entries, head.floor);
    head.content =
        selected ? room
                 : std::min<int64_t>(room, tokens.NumContent(static_cast<int32_t>(head.newest)));
    head.fill_order = entry.fill_rank >= 0 ? entry.fill_rank : kUnranked - entry.probe_ppm();
    head.demand = RungBudget(entry, num_tokens);
    if (mode != KvMode::kBudget && !head.dense) {
      // No more than the type needs at theta; the mandatory tokens count among a budget.
      const int64_t mandatory = num_slots - room;
      const int64_t need =
          head.elastic ? std::max<int64_t>(0, head.demand - mandatory) : head.quota;
      head.room = std::max(head.floor, std::min(room, need));
      head.content = std::min(head.content, head.room);
    }
    return head;
  }

  // Entries beside the mandatory ones that layers [begin, end) share, at `entries` a head.
  static int64_t PoolOf(const KvModelShape& shape, const PromptTokens& tokens,
                        const std::vector<int32_t>& layer_slots, int32_t begin, int32_t end,
                        int64_t entries) {
    int64_t pool = 0;
    for (int32_t layer = begin; layer < end; ++layer) {
      const int64_t slots = layer_slots[static_cast<size_t>(layer)];
      pool += shape.num_kv_heads * (std::min(entries, slots) - tokens.num_mandatory());
    }
    return pool;
  }

  // Every head gets what its type needs, by its own scores.
  static AdaptiveSplit GiveAll(const std::vector<AdaptiveHead>& heads, int32_t num_layers) {
    AdaptiveSplit split;
    for (const AdaptiveHead& head : heads) {
      split.quota.push_back(head.elastic ? 0 : head.quota);
      split.own.push_back(head.elastic ? head.room : 0);
    }
    split.lead.assign(heads.size(), 0);
    split.content_first.assign(heads.size(), 0);
    split.contested.assign(static_cast<size_t>(num_layers), 0);
    return split;
  }

  AdaptiveSplit Split(const KvPolicySpec& spec, const KvModelShape& shape, const PromptInfo& prompt,
                      const PromptTokens& tokens, const std::vector<int32_t>& layer_slots,
                      const std::vector<AdaptiveHead>& heads) const {
    const int64_t entries = RetentionEntries(spec, prompt.num_tokens);
    const auto make = [&](int32_t begin, int32_t end) {
      AdaptiveInput input;
      input.pool = PoolOf(shape, tokens, layer_slots, begin, end, entries);
      input.content_pool = PoolOf(shape, tokens, layer_slots, begin, end,
                                  ScalePpm(settings_.content_retention_ppm, prompt.num_tokens));
      input.local_share_ppm = spec.options.local_share_ppm.value_or(spend_.local_share_ppm);
      input.layers_by_demand = spend_.layers_by_demand;
      if (spec.options.dense_share_ppm.has_value()) {
        input.points = {{.pool = input.pool, .dense_share_ppm = *spec.options.dense_share_ppm}};
        return input;
      }
      for (const SpendPoint& point : spend_.points) {
        const int64_t at = ScalePpm(point.retention_ppm, prompt.num_tokens);
        input.points.push_back({.pool = PoolOf(shape, tokens, layer_slots, begin, end, at),
                                .dense_share_ppm = point.dense_share_ppm});
      }
      return input;
    };
    if (spec.scope == KvScope::kModel) {
      AdaptiveInput input = make(0, shape.num_layers);
      input.heads = heads;
      return SplitPool(input);
    }
    AdaptiveSplit split;
    for (int32_t layer = 0; layer < shape.num_layers; ++layer) {
      AdaptiveInput input = make(layer, layer + 1);
      const auto first = heads.begin() + int64_t{layer} * shape.num_kv_heads;
      input.heads.assign(first, first + shape.num_kv_heads);
      const AdaptiveSplit of_layer = SplitPool(input);
      split.quota.insert(split.quota.end(), of_layer.quota.begin(), of_layer.quota.end());
      split.own.insert(split.own.end(), of_layer.own.begin(), of_layer.own.end());
      split.lead.insert(split.lead.end(), of_layer.lead.begin(), of_layer.lead.end());
      split.content_first.insert(split.content_first.end(), of_layer.content_first.begin(),
                                 of_layer.content_first.end());
      split.contested.push_back(of_layer.contested.back());
      split.overran |= of_layer.overran;
    }
    return split;
  }

  static HeadPlan PlanHead(const HeadEntry& entry, const PromptTokens& tokens,
                           const HeadQuota& quota, int64_t granted, int64_t lead, int64_t own,
                           const AdaptiveHead& head) {
    HeadPlan plan;
    plan.sink_slots = tokens.sink_tokens();
    plan.recent_slots = tokens.recent_tokens();
    plan.keep_special = true;
    plan.score = ScoreKind::kWindow;
    plan.oldest_entries = static_cast<int32_t>(lead);
    if (head.elastic) {
      plan.newest_entries = static_cast<int32_t>(std::min(own - lead, head.newest));
    } else {
      // The newest first: a quota that is cut drops punctuation, then the window's far end.
      plan.newest_entries = static_cast<int32_t>(std::min<int64_t>(granted, quota.newest));
      plan.punctuation_entries = static_cast<int32_t>(granted) - plan.newest_entries;
    }
    plan.safe_entries = static_cast<int32_t>(tokens.num_mandatory() + granted + own);
    plan.competes = head.elastic;
    plan.num_entries = plan.competes ? static_cast<int32_t>(tokens.num_mandatory() + head.room)
                                     : plan.safe_entries;
    plan.weight = static_cast<float>(entry.weight_ppm) / static_cast<float>(kPpm);
    return plan;
  }

  // Heads that have all that their type needs are tested: fixed ones with whole quotas, which then
  // get an even share and 32 entries more at least, and heavy ones under mode recovery, which then
  // keep everything. Where the budget binds, a small mass is what was asked for.
  void SetCheck(const KvPolicySpec& spec, const AdaptiveHead& head, int64_t granted,
                int32_t num_tokens, int32_t num_slots, HeadPlan& plan) const {
    const bool tested =
        head.elastic ? !head.dense && spec.mode == KvMode::kRecovery : granted == head.quota;
    if (!tested || plan.safe_entries == num_slots) {
      return;
    }
    plan.check_target_ppm = std::max<int64_t>(1, spec.recovery_ppm - kCheckSlackPpm);
    const int64_t even = RetentionEntries(spec, num_tokens);
    plan.escalated_entries = static_cast<int32_t>(std::min<int64_t>(
        num_slots, std::max<int64_t>(even, plan.safe_entries + settings_.floor_entries)));
  }

  // Dense heads grow, heavy ones compete by score, the others are rings behind what their type
  // keeps. Sinks and special tokens stay in all.
  static TypedDecode TypedOf(const HeadEntry& entry, int32_t num_tokens) {
    const HeadType type = SpentType(entry);
    if (type == HeadType::kDense) {
      return {};
    }
    TypedDecode typed;
    typed.kind = type == HeadType::kHeavy ? DecodeKind::kLowestScore : DecodeKind::kRing;
    typed.pins_special = true;
    typed.pins_punctuation = KeepsPunctuation(entry);
    typed.max_pinned_rows = TypedPinnedRows(num_tokens);
    return typed;
  }

  const std::shared_ptr<const HeadMap> map_;
  const AdaptiveSettings settings_;
  SpendPlan spend_;  // of the preference
};

}  // namespace

std::unique_ptr<KvPolicy> MakeAdaptivePolicy(std::shared_ptr<const HeadMap> map,
                                             const std::string& prefer,
                                             const AdaptiveSettings& settings) {
  return std::make_unique<AdaptivePolicy>(std::move(map), prefer, settings);
}

}  // namespace headroom::engine
