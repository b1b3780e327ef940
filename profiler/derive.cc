#include "profiler/derive.h"

#include <fmt/format.h>

#include <vector>

#include "profiler/classifier.h"
#include "profiler/ladder.h"

namespace headroom::profiler {
namespace {

using engine::HeadEntry;
using engine::HeadMap;
using engine::HeadType;

constexpr int64_t kPpm = 1'000'000;

int32_t RungAt(const HeadEntry& head, int64_t theta_ppm, const std::vector<int64_t>& entries,
               int64_t reference_tokens) {
  const PassRule rule{.theta_ppm = theta_ppm};
  std::vector<uint8_t> passes;
  for (const engine::RungRecovery& rung : head.recovery) {
    passes.push_back(
        rung.p10_ppm >= theta_ppm && rung.mean_ppm >= theta_ppm - rule.domain_slack_ppm ? 1 : 0);
  }
  return CheapestRung(passes, entries, reference_tokens);
}

Status CheckRungs(const HeadMap& map, const Ladder& ladder) {
  for (const HeadEntry& head : map.heads) {
    bool is_same = head.recovery.size() == ladder.rungs.size();
    for (size_t i = 0; is_same && i < ladder.rungs.size(); ++i) {
      is_same = head.recovery[i].rung == ladder.rungs[i].name;
    }
    if (!is_same) {
      return InvalidArgument("derive: the map's recoveries are not of its ladder {} at ratio {}",
                             map.profile.ladder, map.profile.budget_ratio_ppm);
    }
  }
  return OkStatus();
}

}  // namespace

StatusOr<HeadMap> DeriveHeadMap(const HeadMap& map, int64_t theta_ppm) {
  if (theta_ppm < 1 || theta_ppm > kPpm) {
    return InvalidArgument("derive: theta: got {} millionths, wanted above 0, at most 1",
                           theta_ppm);
  }
  if (map.profile.classifier != "threshold/1") {
    return InvalidArgument("derive: got a map by {}, wanted threshold/1", map.profile.classifier);
  }
  HEADROOM_ASSIGN_OR_RETURN(const Ladder ladder,
                            LadderByName(map.profile.ladder, map.profile.budget_ratio_ppm));
  HEADROOM_RETURN_IF_ERROR(CheckRungs(map, ladder));
  const ReferenceLength reference{.num_tokens = map.profile.reference_tokens,
                                  .num_special = map.profile.reference_special,
                                  .num_punctuation = map.profile.reference_punctuation};
  const int64_t recent = map.profile.recent_tokens;
  const std::vector<int64_t> entries = LadderEntries(ladder, reference, recent);
  HeadMap derived = map;
  if (theta_ppm == map.profile.theta_ppm) {
    return derived;
  }
  derived.profile.theta_ppm = theta_ppm;
  for (HeadEntry& head : derived.heads) {
    const HeadType before = head.type;
    const int32_t last = static_cast<int32_t>(ladder.rungs.size()) - 1;
    const int32_t own = RungAt(head, map.profile.theta_ppm, entries, reference.num_tokens);
    int32_t rung = RungAt(head, theta_ppm, entries, reference.num_tokens);
    // What promotes a head whatever its mass says does so at every theta. A probe shows in the mean
    // score, or in that the head is dense where its masses ask for less.
    if (before == HeadType::kDense &&
        (own != last || head.probe_ppm() >= map.profile.probe_threshold_ppm)) {
      rung = last;
    }
    const Rung& chosen = ladder.rungs[static_cast<size_t>(rung)];
    if (rung != own || TypeOfRung(chosen) != before) {
      SetRung(chosen, reference, recent, &head);
    }
    SetMargin(head.recovery[static_cast<size_t>(rung)].p10_ppm, theta_ppm, &head);
  }
  derived.validation = {};
  derived.hash.clear();
  return derived;
}

}  // namespace headroom::profiler
