// LlamaForCausalLM / GGUF "llama": RMSNorm, RoPE, grouped-query attention, SwiGLU, no biases.
#pragma once

#include "models/architectures/registry.h"

namespace headroom::models {

Architecture LlamaArchitecture();

}  // namespace headroom::models
