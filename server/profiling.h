// A whole profile, from model and prompts to the head map: what `headroom profile` and the library
// call (server/fastgen.h) have in common, so that equal inputs give equal bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "engine/kv/head_map.h"
#include "profiler/evaluation/observer.h"
#include "profiler/profile_run.h"
#include "server/runtime.h"

namespace headroom::server {

// A file of prompts by its content. Names that end in ".txt" hold records parted by "---", all
// others are JSON lines.
struct PromptFile {
  std::string name;  // for messages: "a.jsonl"
  std::string text;
};

struct ProfileRequest {
  RuntimeOptions runtime;  // the model; kv_dtype "auto": the backend's
  std::vector<PromptFile> files;
  std::vector<std::string> texts;  // prompts of text, beside the files
  int64_t limit = 256;
  int32_t max_tokens = 4096;
  std::vector<int32_t> lengths;  // ascending; empty: prompts as they are
  profiler::ProfileOptions options;
  bool validate = true;
};

struct ProfileOutcome {
  engine::HeadMap map;
  profiler::ProfileNotes notes;
};

// Blocks until done. Errors are configuration errors that name what is wrong, or kCancelled.
StatusOr<ProfileOutcome> Profile(const ProfileRequest& request, const Clock& clock,
                                 profiler::EvalObserver& observer);

}  // namespace headroom::server
