#include "tests/support/kv_fixture.h"

#include <utility>

#include "base/check.h"
#include "base/philox.h"
#include "kernels/ref/ref_backend.h"
#include "tests/support/ragged_policy.h"
#include "tests/support/test_map.h"

namespace headroom::testing {

KvFixture::KvFixture(const KvFixtureOptions& options)
    : KvFixture(MakeTinyModel(options.shape), options) {}

KvFixture::KvFixture(models::LoadedModel model, const KvFixtureOptions& options)
    : KvFixture(std::move(model), options, kernels::CreateRefBackend()) {}

KvFixture::KvFixture(models::LoadedModel model, const KvFixtureOptions& options,
                     std::unique_ptr<kernels::Backend> backend)
    : loaded_(std::move(model)), backend_(std::move(backend)), tsp_layer_(options.tsp_layer) {
  const models::ModelConfig& config = loaded_.config;
  policies_.Add(MakeRaggedPolicy(7));
  policies_.Add(MakeTestAdaptive(config.num_hidden_layers, config.num_key_value_heads));
  auto transformer = models::Transformer::Create(
      config, loaded_.weights, *backend_,
      {.max_rows = options.max_rows, .max_logit_rows = 64, .max_context = 8192});
  HEADROOM_CHECK(transformer.ok());
  model_ = std::move(transformer).value();
  engine::KvCacheConfig cache_config;
  cache_config.num_layers = config.num_hidden_layers;
  cache_config.hidden_size = config.hidden_size;
  cache_config.attention_scale = model_->attention_scale();
  cache_config.tsp_layer = options.tsp_layer;
  cache_config.num_pages = options.num_pages;
  cache_config.geometry = {.num_kv_heads = config.num_key_value_heads,
                           .group_size = config.group_size(),
                           .head_dim = config.head_dim,
                           .dtype = options.dtype};
  auto cache = engine::KvCache::Create(cache_config, *backend_, policies_, clock_);
  HEADROOM_CHECK(cache.ok());
  cache_ = std::move(cache).value();
}

engine::KvModelShape KvFixture::shape() const {
  return {.num_layers = loaded_.config.num_hidden_layers,
          .num_kv_heads = loaded_.config.num_key_value_heads,
          .tsp_layer = tsp_layer_};
}

engine::KvPolicySpec MakeKvSpec(const std::string& policy, int64_t retention_ppm, int64_t tsp_ppm,
                                engine::KvDecode decode) {
  engine::KvPolicySpec spec;
  spec.policy = policy;
  spec.retention_ppm = retention_ppm;
  spec.tsp_ppm = tsp_ppm;
  spec.decode = decode;
  spec.min_prompt = 0;
  spec.tsp_min_prompt = 0;
  spec.window = 4;
  spec.sink_tokens = 2;
  return spec;
}

std::string KvDTypeName(kernels::KvDType dtype) {
  return dtype == kernels::KvDType::kF32    ? "f32"
         : dtype == kernels::KvDType::kBF16 ? "bf16"
                                            : "int8";
}

std::vector<int32_t> RandomTokens(int32_t count, int32_t vocab_size, uint64_t seed) {
  const Philox random(seed, 77);
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>(random.Uniform(static_cast<uint64_t>(i)) * vocab_size));
  }
  return tokens;
}

}  // namespace headroom::testing
