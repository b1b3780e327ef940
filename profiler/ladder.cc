#include "profiler/ladder.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace headroom::profiler {
namespace {

constexpr int64_t kPpm = 1'000'000;
// Edges of the distance buckets, so that masses of these windows are exact.
constexpr int32_t kWindows[] = {128, 256, 512, 1024};
constexpr int64_t kBorderlineMargin = 10'000;
constexpr int64_t kBorderlineConfidence = 800'000;
// A rung that keeps more of the prompts says nothing of longer ones.
constexpr int64_t kMostShare = 900'000;
constexpr int64_t kHeavyShares[] = {20'000, 50'000, 100'000, 200'000, 300'000};

// "0.05" of 50,000: the shortest decimal.
std::string ShareText(int64_t ppm) {
  std::string text = fmt::format("{}.{:06}", ppm / kPpm, ppm % kPpm);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) {
    text.pop_back();
  }
  return text;
}

int64_t ShareOf(int64_t ppm, int64_t num_tokens) { return ppm * num_tokens / kPpm; }

Rung LocalRung(bool punctuation, int32_t window, int64_t window_ppm) {
  Rung rung;
  rung.punctuation = punctuation;
  rung.window = window;
  rung.window_ppm = window_ppm;
  rung.name = fmt::format("{}:{}", punctuation ? "R2p" : "R2",
                          window > 0 ? fmt::format("{}", window) : ShareText(window_ppm));
  return rung;
}

Rung HeavyRung(int64_t heavy_ppm, int32_t window, int64_t window_ppm) {
  Rung rung;
  rung.punctuation = true;
  rung.heavy_ppm = heavy_ppm;
  rung.window = window;
  rung.window_ppm = window_ppm;
  if (window == 0 && window_ppm == 0) {
    rung.name = fmt::format("R3:{}", ShareText(heavy_ppm));
  } else {
    rung.name = fmt::format("R4:{}+{}", ShareText(heavy_ppm),
                            window > 0 ? fmt::format("{}", window) : ShareText(window_ppm));
  }
  return rung;
}

Rung SpecialRung() { return {.name = "R0"}; }
Rung PunctRung() { return {.name = "R1", .punctuation = true}; }
Rung FullRung() { return {.name = "R5", .punctuation = true, .all = true}; }

// What a rung keeps of the newest tokens.
int64_t WindowTokens(const Rung& rung, int64_t num_tokens, int64_t recent_tokens) {
  return std::max({recent_tokens, int64_t{rung.window}, ShareOf(rung.window_ppm, num_tokens)});
}

}  // namespace

Ladder DefaultLadder(int64_t local_ratio_ppm) {
  Ladder ladder{.name = "default/1", .rungs = {SpecialRung(), PunctRung()}};
  for (const int32_t window : kWindows) {
    ladder.rungs.push_back(LocalRung(false, window, 0));
    ladder.rungs.push_back(LocalRung(true, window, 0));
  }
  ladder.rungs.push_back(LocalRung(false, 0, local_ratio_ppm));
  ladder.rungs.push_back(LocalRung(true, 0, local_ratio_ppm));
  for (const int64_t share : kHeavyShares) {
    ladder.rungs.push_back(HeavyRung(share, 0, 0));
  }
  for (const int64_t share : kHeavyShares) {
    ladder.rungs.push_back(HeavyRung(share, 256, 0));
  }
  ladder.rungs.push_back(HeavyRung(kHeavyShares[4], 0, local_ratio_ppm));
  ladder.rungs.push_back(FullRung());
  return ladder;
}

Ladder PaperLadder(int64_t ratio_ppm) {
  return {.name = "paper/1",
          .rungs = {SpecialRung(), PunctRung(), HeavyRung(ratio_ppm, 0, 0),
                    HeavyRung(ratio_ppm, 0, ratio_ppm), FullRung()}};
}

StatusOr<Ladder> LadderByName(const std::string& name, int64_t budget_ratio_ppm) {
  for (Ladder ladder : {DefaultLadder(budget_ratio_ppm), PaperLadder(budget_ratio_ppm)}) {
    if (ladder.name == name) {
      return ladder;
    }
  }
  return InvalidArgument("ladder: got {}, wanted default/1 or paper/1", name);
}

int64_t RungEntries(const Rung& rung, int64_t num_tokens, int64_t num_special,
                    int64_t num_punctuation, int64_t recent_tokens) {
  if (rung.all) {
    return num_tokens;
  }
  const int64_t window = WindowTokens(rung, num_tokens, recent_tokens);
  if (window >= num_tokens) {
    return num_tokens;
  }
  // Special tokens stand in front, punctuation anywhere: what the window holds counts once.
  const int64_t outside = num_tokens - window;
  int64_t entries = window + std::min(num_special, outside);
  if (rung.punctuation) {
    entries += num_punctuation * outside / num_tokens;
  }
  entries += ShareOf(rung.heavy_ppm, num_tokens);
  return std::min(entries, num_tokens);
}

engine::HeadType TypeOfRung(const Rung& rung) {
  if (rung.all) {
    return engine::HeadType::kDense;
  }
  if (rung.heavy_ppm > 0) {
    return engine::HeadType::kHeavy;
  }
  if (rung.window > 0 || rung.window_ppm > 0) {
    return engine::HeadType::kLocal;
  }
  return rung.punctuation ? engine::HeadType::kPunct : engine::HeadType::kSpecial;
}

void SetRung(const Rung& rung, const ReferenceLength& reference, int64_t recent_tokens,
             engine::HeadEntry* head) {
  head->type = TypeOfRung(rung);
  head->window = 0;
  head->heavy_ppm = 0;
  head->keeps_punctuation = false;
  if (rung.all) {
    head->budget_tokens = 0;
    head->budget_ppm = kPpm;
    return;
  }
  if (head->type == engine::HeadType::kLocal) {
    head->window = static_cast<int32_t>(WindowTokens(rung, reference.num_tokens, recent_tokens));
  }
  head->heavy_ppm = rung.heavy_ppm;
  head->keeps_punctuation = rung.punctuation && rung.heavy_ppm == 0;
  head->budget_tokens = reference.num_special;
  head->budget_ppm = rung.heavy_ppm;
  if (rung.window_ppm > 0) {
    head->budget_ppm += rung.window_ppm;
  } else {
    head->budget_tokens += std::max(recent_tokens, int64_t{rung.window});
  }
  if (rung.punctuation && reference.num_tokens > 0) {
    head->budget_ppm += reference.num_punctuation * kPpm / reference.num_tokens;
  }
  head->budget_ppm = std::min(head->budget_ppm, kPpm);
}

void SetMargin(int64_t p10_ppm, int64_t theta_ppm, engine::HeadEntry* head) {
  head->margin_ppm = p10_ppm - theta_ppm;
  head->borderline =
      (head->type != engine::HeadType::kDense && head->margin_ppm < kBorderlineMargin) ||
      head->confidence_ppm < kBorderlineConfidence;
}

int32_t CheapestRung(std::span<const uint8_t> passes, std::span<const int64_t> entries,
                     int64_t reference_tokens) {
  HEADROOM_CHECK(!entries.empty() && passes.size() == entries.size());
  const size_t last = entries.size() - 1;
  size_t best = last;
  int64_t best_entries = reference_tokens * kMostShare / kPpm;
  for (size_t rung = 0; rung < last; ++rung) {
    if (passes[rung] != 0 && entries[rung] < best_entries) {
      best = rung;
      best_entries = entries[rung];
    }
  }
  return static_cast<int32_t>(best);
}

std::vector<int64_t> LadderEntries(const Ladder& ladder, const ReferenceLength& reference,
                                   int64_t recent_tokens) {
  std::vector<int64_t> entries;
  for (const Rung& rung : ladder.rungs) {
    entries.push_back(RungEntries(rung, reference.num_tokens, reference.num_special,
                                  reference.num_punctuation, recent_tokens));
  }
  return entries;
}

}  // namespace headroom::profiler
