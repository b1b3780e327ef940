// Flags that several subcommands share.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "server/generation_request.h"
#include "server/runtime.h"

namespace headroom::server {

// MODEL and everything of RuntimeOptions, and --log-level.
struct RuntimeFlags {
  RuntimeOptions options;
  std::string log_level = "info";
};
void AddRuntimeFlags(CLI::App* command, RuntimeFlags* flags);
// Sets the log level and checks that a model is named.
Status FinishRuntimeFlags(const RuntimeFlags& flags);

// The budget fields as flags; empty and negative: not named.
struct BudgetFlags {
  std::string policy;
  std::string retention;
  std::string tsp_ratio;
  int64_t retention_tokens = -1;
  int64_t tsp_tokens = -1;
  int64_t window = -1;
  int64_t window_raw = -1;
  std::string pool;
  int64_t pool_width = -1;
  int64_t sink_tokens = -1;
  int64_t min_prompt = -1;
  int64_t tsp_min_prompt = -1;
  std::string recovery;
  std::string options;  // a JSON object
  std::string decode;
  std::string mode;
  std::string scope;
  bool head_check = false;
  bool strict = false;
};
void AddBudgetFlags(CLI::App* command, BudgetFlags* flags);
StatusOr<BudgetFields> ToBudgetFields(const BudgetFlags& flags);

// "1,2,3" or "1 2 3" to numbers.
StatusOr<std::vector<int64_t>> ParseNumbers(const std::string& text, const std::string& flag);

}  // namespace headroom::server
