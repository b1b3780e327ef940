#include "profiler/head_map_diff.h"

#include <algorithm>

#include "profiler/evaluation/text_table.h"
#include "profiler/profile_summary.h"

namespace headroom::profiler {
namespace {

using engine::HeadEntry;
using engine::HeadMap;
using engine::HeadType;
using engine::HeadTypeName;

constexpr int64_t kMostNeedierPercent = 5;

std::string Pair(const std::string& before, const std::string& after) {
  return before == after ? before : fmt::format("{} -> {}", before, after);
}

std::string Counts(const HeadMap& before, const HeadMap& after) {
  const auto old_counts = engine::CountHeadTypes(before);
  const auto new_counts = engine::CountHeadTypes(after);
  TextTable table({"type", "before", "after"});
  for (size_t i = 0; i < old_counts.size(); ++i) {
    table.Add({HeadTypeName(static_cast<HeadType>(i)), fmt::format("{}", old_counts[i]),
               fmt::format("{}", new_counts[i])});
  }
  return table.Text();
}

std::string Differences(const HeadMap& before, const HeadMap& after) {
  std::string text;
  const auto add = [&text](const char* what, const std::string& old_value,
                           const std::string& new_value) {
    if (old_value != new_value) {
      text += fmt::format("{}: {} -> {}\n", what, old_value.empty() ? "none" : old_value,
                          new_value.empty() ? "none" : new_value);
    }
  };
  add("map hash", before.hash, after.hash);
  add("weights", before.model.weights_hash, after.model.weights_hash);
  add("architecture", before.model.arch_hash, after.model.arch_hash);
  add("vocabulary", before.tokenizer.vocab_hash, after.tokenizer.vocab_hash);
  add("theta", engine::PpmText(before.profile.theta_ppm), engine::PpmText(after.profile.theta_ppm));
  add("ladder", before.profile.ladder, after.profile.ladder);
  add("classifier", before.profile.classifier, after.profile.classifier);
  add("TSP layer", fmt::format("{}", before.tsp.layer), fmt::format("{}", after.tsp.layer));
  add("validation", before.validation.status, after.validation.status);
  return text;
}

}  // namespace

StatusOr<std::vector<HeadFlip>> DiffHeadMaps(const HeadMap& before, const HeadMap& after) {
  if (before.model.num_layers != after.model.num_layers ||
      before.model.num_kv_heads != after.model.num_kv_heads) {
    return InvalidArgument("the maps are of other models: {} layers of {} KV heads, {} of {}",
                           before.model.num_layers, before.model.num_kv_heads,
                           after.model.num_layers, after.model.num_kv_heads);
  }
  std::vector<HeadFlip> flips;
  for (size_t i = 0; i < before.heads.size(); ++i) {
    const HeadEntry& old_head = before.heads[i];
    const HeadEntry& new_head = after.heads[i];
    if (old_head.type != new_head.type) {
      flips.push_back({.head = i,
                       .before = old_head.type,
                       .after = new_head.type,
                       .borderline = old_head.borderline || new_head.borderline});
    }
  }
  return flips;
}

std::string DiffText(const HeadMap& before, const HeadMap& after,
                     const std::vector<HeadFlip>& flips) {
  std::string text = Differences(before, after);
  text += fmt::format("{} of {} heads changed type ({} of them borderline)\n", flips.size(),
                      before.heads.size(),
                      std::count_if(flips.begin(), flips.end(),
                                    [](const HeadFlip& flip) { return flip.borderline; }));
  if (!flips.empty()) {
    TextTable table({"layer.head", "type", "margin", "probe", ""});
    for (const HeadFlip& flip : flips) {
      const HeadEntry& old_head = before.heads[flip.head];
      const HeadEntry& new_head = after.heads[flip.head];
      table.Add({HeadName(before, flip.head),
                 Pair(HeadTypeName(flip.before), HeadTypeName(flip.after)),
                 Pair(engine::PpmText(old_head.margin_ppm), engine::PpmText(new_head.margin_ppm)),
                 Pair(engine::PpmText(old_head.probe_ppm()), engine::PpmText(new_head.probe_ppm())),
                 flip.borderline ? "borderline" : ""});
    }
    text += table.Text() + Counts(before, after);
  }
  return text;
}

MapVerdict JudgeMap(const HeadMap& map, const HeadMap& fresh) {
  MapVerdict verdict;
  for (size_t i = 0; i < map.heads.size(); ++i) {
    const HeadEntry& head = map.heads[i];
    const HeadEntry& now = fresh.heads[i];
    const bool fetches =
        now.type == HeadType::kDense && now.probe_ppm() >= fresh.profile.probe_threshold_ppm;
    verdict.missed_probes += fetches && head.type != HeadType::kDense ? 1 : 0;
    verdict.needier += now.type > head.type && !head.borderline && !now.borderline ? 1 : 0;
  }
  const auto num_heads = static_cast<int64_t>(map.heads.size());
  verdict.keep =
      verdict.missed_probes == 0 && verdict.needier * 100 <= kMostNeedierPercent * num_heads;
  verdict.text = fmt::format(
      "{}: {} heads that fetch are not typed dense (wanted 0), {} of {} heads need a costlier type "
      "(wanted at most {} %)",
      verdict.keep ? "keep the map" : "re-profile", verdict.missed_probes, verdict.needier,
      num_heads, kMostNeedierPercent);
  return verdict;
}

}  // namespace headroom::profiler
