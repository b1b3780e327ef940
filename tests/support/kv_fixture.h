// A random model on a backend with a KvCache: what tests of the cache start from.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/kv/kv_cache.h"
#include "engine/kv/policy.h"
#include "models/transformer.h"
#include "tests/support/tiny_model.h"

namespace headroom::testing {

// Time that moves by one millisecond a look.
class TickingClock final : public Clock {
 public:
  int64_t NowNs() const override { return now_ns_ += 1'000'000; }

 private:
  mutable int64_t now_ns_ = 0;
};

struct KvFixtureOptions {
  TinyShape shape;
  int32_t tsp_layer = 1;
  int32_t num_pages = 4096;
  int32_t max_rows = 2048;
  kernels::KvDType dtype = kernels::KvDType::kF32;
};

// Owns everything; the registry also has "ragged" (seed 7) and "adaptive" with a
// test map.
class KvFixture {
 public:
  explicit KvFixture(const KvFixtureOptions& options);
  // A loaded model instead of a random one; shape.seed and sizes are not read.
  KvFixture(models::LoadedModel model, const KvFixtureOptions& options);
  // On another backend than ref.
  KvFixture(models::LoadedModel model, const KvFixtureOptions& options,
            std::unique_ptr<kernels::Backend> backend);

  const models::LoadedModel& loaded() const { return loaded_; }
  kernels::Backend& backend() { return *backend_; }
  engine::KvPolicyRegistry& policies() { return policies_; }
  models::Transformer& model() { return *model_; }
  engine::KvCache& cache() { return *cache_; }
  engine::KvModelShape shape() const;

 private:
  models::LoadedModel loaded_;
  std::unique_ptr<kernels::Backend> backend_;
  engine::KvPolicyRegistry policies_;
  TickingClock clock_;
  int32_t tsp_layer_;
  std::unique_ptr<models::Transformer> model_;
  std::unique_ptr<engine::KvCache> cache_;
};

// A spec for short prompts: no thresholds, window 4, 2 sinks.
engine::KvPolicySpec MakeKvSpec(const std::string& policy, int64_t retention_ppm, int64_t tsp_ppm,
                                engine::KvDecode decode = engine::KvDecode::kGrow);

// For the names of tests.
std::string KvDTypeName(kernels::KvDType dtype);

// `count` token ids below `vocab_size`, seeded.
std::vector<int32_t> RandomTokens(int32_t count, int32_t vocab_size, uint64_t seed);

}  // namespace headroom::testing
