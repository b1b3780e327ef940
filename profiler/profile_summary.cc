#include "profiler/profile_summary.h"

#include <fmt/format.h>

#include <algorithm>

namespace headroom::profiler {
namespace {

using engine::HeadEntry;
using engine::HeadType;

constexpr int64_t kFewPrompts = 100;
constexpr int64_t kSoleTypePercent = 95;

}  // namespace

TypeCounts CountTypes(const std::vector<HeadEntry>& heads) {
  TypeCounts counts = {};
  for (const HeadEntry& head : heads) {
    ++counts[static_cast<size_t>(head.type)];
  }
  return counts;
}

const char* TypicalShare(HeadType type) {
  switch (type) {
    case HeadType::kSpecial:
      return "10-15";
    case HeadType::kPunct:
      return "15-20";
    case HeadType::kLocal:
      return "30-40";
    case HeadType::kHeavy:
      return "25-35";
    case HeadType::kDense:
      return "-";
  }
  return "-";
}

std::string HeadName(const engine::HeadMap& map, size_t index) {
  const auto per_layer = static_cast<size_t>(map.model.num_kv_heads);
  return fmt::format("{}.{}", index / per_layer, index % per_layer);
}

std::vector<size_t> ByProbeScore(const std::vector<HeadEntry>& heads) {
  std::vector<size_t> order;
  for (size_t i = 0; i < heads.size(); ++i) {
    if (heads[i].probe_ppm() > 0) {
      order.push_back(i);
    }
  }
  std::stable_sort(order.begin(), order.end(), [&heads](size_t a, size_t b) {
    return heads[a].probe_ppm() > heads[b].probe_ppm();
  });
  return order;
}

std::vector<size_t> DomainFlips(const std::vector<HeadEntry>& heads) {
  std::vector<size_t> flips;
  for (size_t i = 0; i < heads.size(); ++i) {
    const auto& domains = heads[i].per_domain;
    const bool differs = std::any_of(domains.begin(), domains.end(), [&](const auto& domain) {
      return domain.second != domains.front().second;
    });
    if (differs) {
      flips.push_back(i);
    }
  }
  return flips;
}

std::vector<std::string> Warnings(const ProfileReport& report) {
  std::vector<std::string> warnings = report.notes.warnings;
  const engine::HeadMap& map = report.map;
  const auto num_heads = static_cast<int64_t>(map.heads.size());
  const int64_t num_prompts =
      report.notes.num_given > 0 ? report.notes.num_given : report.notes.num_prompts;
  if (num_prompts < kFewPrompts) {
    warnings.push_back(
        fmt::format("{} prompts, wanted at least {}: types of rare content are "
                    "missed, the map stays unvalidated",
                    num_prompts, kFewPrompts));
  }
  if (map.profile.probes.empty()) {
    warnings.push_back("no probes: heads that fetch facts look local by their mean mass");
  }
  const TypeCounts counts = CountTypes(map.heads);
  for (int32_t type = 0; type < engine::kNumHeadTypes; ++type) {
    if (counts[static_cast<size_t>(type)] * 100 >= num_heads * kSoleTypePercent) {
      warnings.push_back(fmt::format("{} of {} heads are {}: the map has little to redistribute",
                                     counts[static_cast<size_t>(type)], num_heads,
                                     engine::HeadTypeName(static_cast<HeadType>(type))));
    }
  }
  const auto borderline = std::count_if(map.heads.begin(), map.heads.end(),
                                        [](const HeadEntry& head) { return head.borderline; });
  if (borderline * 4 > num_heads) {
    warnings.push_back(
        fmt::format("{} of {} heads are borderline: more, and more varied, prompts "
                    "may change their types",
                    borderline, num_heads));
  }
  const size_t flips = DomainFlips(map.heads).size();
  if (static_cast<int64_t>(flips) * 4 > num_heads) {
    warnings.push_back(
        fmt::format("{} of {} heads have another type in another domain", flips, num_heads));
  }
  const int64_t tokens = map.profile.reference_tokens;
  if (tokens > 0 && map.profile.reference_punctuation * 4 > tokens) {
    warnings.push_back(
        "punctuation is more than a quarter of the prompts: punct budgets are large");
  }
  return warnings;
}

}  // namespace headroom::profiler
