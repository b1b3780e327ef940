// Reads and makes what `headroom eval` measures on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "profiler/evaluation/documents.h"
#include "profiler/evaluation/needle_prompt.h"
#include "server/runtime.h"

namespace headroom::server {

struct EvalInputFlags {
  // Fidelity.
  std::vector<std::string> texts;
  std::vector<std::string> byte_texts;
  std::vector<std::string> id_files;
  std::string doc_tokens = "2048";
  std::string docs = "4";
  int64_t continuation = 256;
  // Needles.
  std::vector<std::string> needle_files;
  std::string make_needles;  // 1hop, 2hop, text
  std::string haystack;
  std::string needle_length = "512";
  int64_t needle_count = 32;
  int64_t rank_candidates = 10;
  uint64_t seed = 1;
};

// Documents of every file at every length. Empty when no file is named.
StatusOr<std::vector<profiler::Document>> ReadDocuments(const EvalInputFlags& flags,
                                                        const Runtime& runtime);

// A task for each needle file and each task of --make-needles. Empty when there is none.
StatusOr<std::vector<profiler::NeedleTask>> ReadNeedles(const EvalInputFlags& flags,
                                                        const Runtime& runtime, const Clock& clock);

}  // namespace headroom::server
