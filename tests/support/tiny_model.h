// Small random LLaMA models for tests: weights in code, no files.
#pragma once

#include <cstdint>

#include "models/loaded_model.h"

namespace headroom::testing {

struct TinyShape {
  int32_t num_layers = 3;
  int32_t hidden_size = 24;
  int32_t intermediate_size = 40;
  int32_t num_heads = 4;
  int32_t num_kv_heads = 2;
  int32_t head_dim = 8;
  int32_t vocab_size = 48;
  models::RopePairing pairing = models::RopePairing::kHalves;
  uint64_t seed = 1;
};

// f32 weights, tied embeddings, no tokenizer. Queries and keys are large enough for attention to
// be peaked, so that a wrong mask shows in the logits.
models::LoadedModel MakeTinyModel(const TinyShape& shape);

}  // namespace headroom::testing
