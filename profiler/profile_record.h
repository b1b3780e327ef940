// What one prompt says about every head: the fixed-size records that the statistics make of a
// prompt and that the classifier reads. Their size does not depend on the prompt's length.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace headroom::profiler {

// One set of slots that a head could keep: sinks and special tokens always, the last
// `recent_tokens` (w0) always, and the unions below.
struct Rung {
  std::string name;  // "R0", "R1", "R2:256", "R2p:256", "R3:0.05", "R4:0.05+256", "R5"
  bool punctuation = false;
  int32_t window = 0;      // > 0: the last so many tokens of each row
  int64_t window_ppm = 0;  // > 0: the same as a share of N
  int64_t heavy_ppm = 0;   // so many of N of the best columns outside the other sets
  bool all = false;        // R5
};

// A ladder in the order in which rungs are tried, the cheapest first; the last keeps everything.
struct Ladder {
  std::string name;  // "default/1", "paper/1"
  std::vector<Rung> rungs;
};
Ladder DefaultLadder(int64_t local_ratio_ppm);
Ladder PaperLadder(int64_t ratio_ppm);  // FastGen's Eq. 2 with r_l = r_f [2310.01801]
// Expected entries of a rung at N tokens with that many sink, special and punctuation tokens.
int64_t RungEntries(const Rung& rung, int64_t num_tokens, int64_t num_special,
                    int64_t num_punctuation, int64_t recent_tokens);

// A profiling prompt. All masses are means over the late rows (eval rows), in ppm.
struct PromptRecord {
  std::string domain;
  double weight = 1.0;
  int32_t num_tokens = 0;
  int32_t num_special = 0;  // sinks included
  int32_t num_punctuation = 0;
  std::vector<int32_t> mass_ppm;  // [layers, query heads, rungs]
  // The same by the paper's statistic, all rows, in sample: [layers, query heads, rungs of the
  // paper's ladder]; empty unless asked.
  std::vector<int32_t> paper_mass_ppm;
  std::vector<std::array<int32_t, 5>> class_mass_ppm;  // [layers, query heads], as HeadEntry's
  std::vector<int32_t> value_error_ppm;  // [layers, KV heads, rungs]; empty: not measured
  // Mass that nine of ten of the last rows keep, one by one: [layers, KV heads, rungs], of the
  // neediest query head; empty: not measured.
  std::vector<int32_t> late_p10_ppm;
  std::vector<int32_t> overlap_ppm;  // [layers], top tokens of a layer also on top in later layers
};

// A probe prompt: how strongly each query head went for what had to be copied.
struct ProbeRecord {
  std::string kind;                    // "induction", "needle", "needle_prompts"
  std::vector<int32_t> copy_ppm;       // [layers, query heads]
  std::vector<int32_t> induction_ppm;  // [layers, query heads]
};

}  // namespace headroom::profiler
