#include "server/cli/kv_trace_json.h"

#include <fstream>
#include <nlohmann/json.hpp>

namespace headroom::server {
namespace {

Status CannotWrite(const std::string& path) {
  return InvalidArgument("--kv-trace: cannot write {}", path);
}

}  // namespace

Status CheckKvTraceFile(const std::string& path) {
  return std::ofstream(path, std::ios::binary | std::ios::app) ? OkStatus() : CannotWrite(path);
}

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
    return CannotWrite(path);
  }
  return OkStatus();
}

}  // namespace headroom::server
