#include "server/cli/kv_trace_json.h"

#include <fstream>
#include <nlohmann/json.hpp>

namespace headroom::server {

Status WriteKvTrace(const std::string& path, const engine::KvTrace& trace,
                    const engine::KvReceipt& receipt) {
  nlohmann::ordered_json json;
  json["policy"] = receipt.policy;
  json["prompt_tokens"] = receipt.prompt_tokens;
  json["propagated_tokens"] = receipt.propagated_tokens;
  json["entries"] = receipt.entries;
  json["entries_full"] = receipt.entries_full;
  json["kept"] = trace.kept;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << json.dump() << "\n";
  file.flush();
  if (!file) {
    return InvalidArgument("--kv-trace: cannot write {}", path);
  }
  return OkStatus();
}

}  // namespace headroom::server
