// Probes: prompts in which something has to be fetched from far back, and how strongly each head
// went for it. Mean attention cannot see such heads: they look at their sinks until they are needed
// (docs/profiling.md).
//
// Needle: of the rows that ask and answer. Score of a query head = the larger of its mean attention
// from the rows that predict a token of the answer to where that token stands in the needle, and
// the largest attention of one asking or answering row into the needle's sentence. (Copying heads:
// Wu et al. [2404.15574]; calibration by passkeys: DuoAttention [2410.10819].)
// Induction: a random block of tokens several times over; attention to earlier copies of the row's
// token (echo) and to the tokens behind them (RazorAttention [2407.15891]).
#pragma once

#include "profiler/probe_prompts.h"
#include "profiler/profile_record.h"
#include "profiler/prompt_reader.h"

namespace headroom::profiler {

// Runs a probe. The same for any chunk size and number of threads.
ProbeRecord MeasureProbe(PromptReader& reader, const ProbePrompt& prompt);

}  // namespace headroom::profiler
