#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "server/cli/bench_engine.h"

namespace headroom::server {

Status WriteBenchJson(const BenchReport& report, const std::string& path) {
  nlohmann::ordered_json json;
  json["model"] = report.model;
  json["backend"] = report.backend;
  json["isa"] = report.isa;
  json["threads"] = report.threads;
  json["kv_policy"] = report.policy;
  json["results"] = nlohmann::ordered_json::array();
  for (const BenchRow& row : report.rows) {
    const char* length = row.test == "prefill" ? "prompt_tokens" : "depth";
    json["results"].push_back({{"test", row.test},
                               {length, row.prompt_tokens},
                               {"batch", row.batch},
                               {"tokens", row.tokens},
                               {"tokens_per_s_median", row.tokens_per_s_median},
                               {"tokens_per_s_best", row.tokens_per_s_best},
                               {"kv_pages", row.kv_pages},
                               {"kv_retention_ppm", row.retention_ppm},
                               {"tsp_ratio_ppm", row.tsp_ppm}});
  }
  json["skipped"] = report.skipped;
  const std::string text = json.dump(2) + "\n";
  if (path == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return OkStatus();
  }
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.flush();
  return file ? OkStatus() : InvalidArgument("--json: cannot write {}", path);
}

}  // namespace headroom::server
