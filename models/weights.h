// A model's tensors as they lie in its files, before a backend packs them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/tensor_view.h"
#include "models/config.h"

namespace headroom::models {

struct LayerWeights {
  TensorView input_norm;           // [1, hidden]
  TensorView q_proj;               // [query_width, hidden]
  TensorView k_proj;               // [kv_width, hidden]
  TensorView v_proj;               // [kv_width, hidden]
  TensorView o_proj;               // [hidden, query_width]
  TensorView post_attention_norm;  // [1, hidden]
  TensorView gate_proj;            // [intermediate, hidden]
  TensorView up_proj;              // [intermediate, hidden]
  TensorView down_proj;            // [hidden, intermediate]
};

// Norm weights are f32 or f16 or bf16; matrices may have any DType.
struct ModelWeights {
  TensorView embed_tokens;  // [vocab, hidden]
  TensorView final_norm;    // [1, hidden]
  TensorView lm_head;       // [vocab, hidden]; equal to embed_tokens when tied
  std::vector<LayerWeights> layers;

  // Keeps the memory behind the views alive: mapped files or heap blocks. Drop it (with the
  // views) once a backend has packed the weights.
  std::vector<std::shared_ptr<const void>> storage;
};

}  // namespace headroom::models
