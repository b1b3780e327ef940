// Measures prefill and decode speed of the engine, without HTTP and without a tokenizer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "server/generation_request.h"
#include "server/runtime.h"

namespace headroom::server {

struct BenchEngineOptions {
  RuntimeOptions runtime;
  std::vector<int64_t> prefill_tokens = {512};
  std::vector<int64_t> depths = {0};
  std::vector<int64_t> batches = {1};
  // Depths and batches that the context or the pool cannot hold are left out instead of refused.
  bool skip_what_does_not_fit = false;
  int64_t decode_tokens = 64;
  int64_t repeat = 3;
  BudgetFields budget;
};

struct BenchRow {
  std::string test;           // "prefill" or "decode"
  int64_t prompt_tokens = 0;  // prefill: its length; decode: the depth
  int64_t batch = 0;
  int64_t tokens = 0;  // measured, all sequences together
  double tokens_per_s_median = 0.0;
  double tokens_per_s_best = 0.0;
  int64_t kv_pages = 0;  // held by one sequence after prefill
  // What acted on these prompts; 1 where a short prompt was left whole.
  int64_t retention_ppm = 0;
  int64_t tsp_ppm = 0;
};

struct BenchReport {
  std::string model;
  std::string backend;
  std::string isa;
  int64_t threads = 0;
  std::string policy;
  std::vector<BenchRow> rows;
  std::vector<std::string> skipped;  // one line each
};

// Errors: InvalidArgument names the flag that asks for more than the context or the pool holds.
StatusOr<BenchReport> RunBenchEngine(const BenchEngineOptions& options, const Clock& clock);

// As JSON to a file, or to stdout for "-".
Status WriteBenchJson(const BenchReport& report, const std::string& path);

}  // namespace headroom::server
