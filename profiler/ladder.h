// What the rungs of a ladder mean for a head: its type, and what it keeps of N tokens.
//
// The ladders themselves: DefaultLadder and PaperLadder in profiler/profile_record.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/kv/head_map.h"
#include "profiler/profile_record.h"

namespace headroom::profiler {

// The type of a head whose cheapest good rung this is: R0 special, R1 punct, R2 and R2p local, R3
// and R4 heavy, R5 dense.
engine::HeadType TypeOfRung(const Rung& rung);

// The ladder that a map names, with its budget ratio. Error: a name that is none of ours.
StatusOr<Ladder> LadderByName(const std::string& name, int64_t budget_ratio_ppm);

// Tokens of the profiling prompts, as a rung's cost is estimated with: weighted means.
struct ReferenceLength {
  int64_t num_tokens = 0;
  int64_t num_special = 0;  // sinks included
  int64_t num_punctuation = 0;
};

// Sets what follows from a rung: type, window, heavy_ppm, keeps_punctuation and the budget
// a + b * N of its entries in all. Windows that are a share of N count as tokens at `reference`.
void SetRung(const Rung& rung, const ReferenceLength& reference, int64_t recent_tokens,
             engine::HeadEntry* head);

// Sets the margin of the head's rung, and whether that or its confidence makes it borderline. A
// dense head keeps everything: its margin says nothing.
void SetMargin(int64_t p10_ppm, int64_t theta_ppm, engine::HeadEntry* head);

// The cheapest of the rungs that pass; the last one always does. Ties in entries go to the earlier
// rung; a rung that would keep nine tenths of the reference length or more is passed over: a window
// of 1,024 holds any prompt of 1,050 tokens, and says nothing of longer ones.
int32_t CheapestRung(std::span<const uint8_t> passes, std::span<const int64_t> entries,
                     int64_t reference_tokens);

// Entries of every rung at the reference length: [rungs].
std::vector<int64_t> LadderEntries(const Ladder& ladder, const ReferenceLength& reference,
                                   int64_t recent_tokens);

}  // namespace headroom::profiler
