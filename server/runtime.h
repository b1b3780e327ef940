// Runtime: a loaded model on a backend with its KV cache and engine; what every subcommand that
// runs a model starts from.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "engine/engine.h"
#include "engine/engine_loop.h"
#include "engine/kv/head_map.h"
#include "engine/kv/kv_cache.h"
#include "kernels/ops.h"
#include "models/chat_template/chat_template.h"
#include "models/loaded_model.h"
#include "models/transformer.h"
#include "server/budget_resolver.h"

namespace headroom::server {

struct RuntimeOptions {
  std::string model;             // GGUF file, Hugging Face directory, builtin:NAME
  std::string backend = "cpu";   // cpu, ref
  std::string cpu_isa = "auto";  // auto, avx512, avx2, scalar
  int32_t threads = 0;           // 0: the CPUs this process may use
  std::string kv_dtype = "auto"; // auto (the backend's), f32, bf16, int8
  int64_t kv_memory_mib = 0;     // 0: auto, see DefaultKvBytes
  int64_t kv_pages = 0;          // overrides kv_memory_mib; for tests
  int32_t max_context = 0;       // 0: the model's
  int32_t tsp_layer = -1;        // -1: the head map's, else max(0, L / 2 - 1)
  std::string head_map;          // file of schema headmap/1; empty: no policy `adaptive`
  std::string head_map_check = "strict";  // strict, warn
  std::string prefer = "balanced";        // answers, balanced, fluency
  int32_t max_batch_rows = 512;  // rows of one step
  int32_t max_running = 256;
  int32_t max_queued = 1024;
  int32_t step_time_ms = 100;
  double kv_overcommit = 1.0;    // >= 1: reservations may add up to so many times the pool
  bool check_invariants = false;
};

// The head map that `adaptive` spends by, bound to the loaded model.
struct LoadedHeadMap {
  std::shared_ptr<const engine::HeadMap> map;
  HeadMapInfo info;
};

class Runtime {
 public:
  // Loads, packs, allocates and runs one self-test token. Errors are configuration errors (exit
  // 78) and name what is wrong. `clock` outlives the runtime. The loop is not started.
  static StatusOr<std::unique_ptr<Runtime>> Create(const RuntimeOptions& options,
                                                   const Clock& clock);
  ~Runtime();

  const RuntimeOptions& options() const { return options_; }
  const Clock& clock() const { return clock_; }
  const std::string& model_name() const { return model_name_; }
  const models::ModelConfig& config() const { return config_; }
  const models::Tokenizer* tokenizer() const { return tokenizer_.get(); }            // may be null
  const models::ChatTemplate* chat_template() const { return chat_template_.get(); } // may be null
  const std::string& chat_template_error() const { return chat_template_error_; }
  const std::vector<int32_t>& eos_token_ids() const { return eos_token_ids_; }
  const models::GenerationDefaults& generation_defaults() const { return generation_defaults_; }
  int64_t num_parameters() const { return num_parameters_; }
  int32_t max_context() const { return max_context_; }
  int64_t created_unix_s() const { return created_unix_s_; }

  // Null without --head-map.
  const LoadedHeadMap* head_map() const { return head_map_.has_value() ? &*head_map_ : nullptr; }
  const HeadMapInfo* head_map_info() const {
    return head_map_.has_value() ? &head_map_->info : nullptr;
  }

  kernels::Backend& backend() { return *backend_; }
  const kernels::KvGeometry& geometry() const { return geometry_; }
  const engine::KvModelShape& shape() const { return shape_; }
  const engine::KvPolicyRegistry& policies() const { return policies_; }
  models::Transformer& transformer() { return *transformer_; }
  engine::KvCache& cache() { return *cache_; }
  engine::Engine& engine() { return *engine_; }
  engine::EngineLoop& loop() { return *loop_; }

  // "N sequences of 8K full, M at retention 0.2": what the pool holds once prefilled, for prompts
  // of min(8192, max_context) tokens.
  std::string CapacityText() const;

 private:
  Runtime(const RuntimeOptions& options, const Clock& clock);
  Status LoadModelFiles(models::LoadedModel* loaded);
  Status LoadHeadMap(const models::LoadedModel& loaded);
  int32_t ChooseTspLayer() const;
  Status BuildEngine(const models::LoadedModel& loaded);
  StatusOr<int32_t> ChoosePages() const;
  Status SelfTest();

  const RuntimeOptions options_;
  const Clock& clock_;
  std::string model_name_;
  models::ModelConfig config_;
  std::unique_ptr<models::Tokenizer> tokenizer_;
  std::unique_ptr<models::ChatTemplate> chat_template_;
  std::string chat_template_error_;  // why the model's template cannot be used; empty: none
  std::vector<int32_t> eos_token_ids_;
  models::GenerationDefaults generation_defaults_;
  int64_t num_parameters_ = 0;
  std::optional<LoadedHeadMap> head_map_;
  int32_t max_context_ = 0;
  int64_t created_unix_s_ = 0;
  kernels::KvGeometry geometry_;
  engine::KvModelShape shape_;
  engine::KvPolicyRegistry policies_;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<models::Transformer> transformer_;
  std::unique_ptr<engine::KvCache> cache_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<engine::EngineLoop> loop_;
};

}  // namespace headroom::server
