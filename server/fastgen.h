// The library call: a model and sample prompts in, a head map out. The file that Save writes is the
// one that `headroom profile` writes for the same prompts, byte for byte, and `headroom serve
// --head-map` takes it.
//
//   auto config = ProfileModel("model.gguf", {"First prompt.", "Second."}, {.budget_ratio = 0.3});
//   if (config.ok()) config->Save("map.json");
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/kv/head_map.h"
#include "profiler/evaluation/observer.h"

namespace headroom::server {

struct FastGenOptions {
  double budget_ratio = 0.3;      // at most six decimals count
  double target_recovery = 0.95;  // theta
  uint64_t seed = 1;
  bool validate = true;
  int32_t threads = 0;  // 0: the CPUs this process may use
  // Told how far the profile is, and asked whether to go on; null: nobody.
  profiler::EvalObserver* observer = nullptr;
};

class FastGenConfig {
 public:
  explicit FastGenConfig(engine::HeadMap map) : map_(std::move(map)) {}

  const engine::HeadMap& map() const { return map_; }
  std::string Text() const { return engine::WriteHeadMap(map_); }
  // Whole or not at all.
  Status Save(const std::string& path) const;

 private:
  engine::HeadMap map_;
};

// `model_name` as on the command line: GGUF file, Hugging Face directory, builtin:NAME. Blocks for
// minutes. Errors name what is wrong.
StatusOr<FastGenConfig> ProfileModel(const std::string& model_name,
                                     const std::vector<std::string>& sample_prompts,
                                     const FastGenOptions& options = {});

}  // namespace headroom::server
