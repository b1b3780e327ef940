// Writes what a sequence still remembers of its prompt.
#pragma once

#include <string>

#include "base/status.h"
#include "engine/request.h"

namespace headroom::server {

// Whether that file can be written; it is there, perhaps empty, afterwards.
Status CheckKvTraceFile(const std::string& path);

// {"policy", "prompt_tokens", "entries", "kept": [layer][kv_head] -> ascending prompt positions}.
Status WriteKvTrace(const std::string& path, const engine::KvTrace& trace,
                    const engine::KvReceipt& receipt);

}  // namespace headroom::server
