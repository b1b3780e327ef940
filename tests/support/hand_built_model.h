// A LLaMA model whose weights are formulas, so that it is known what every head attends to: the
// oracle of the profiler and of `adaptive`.
//
// Six layers, two KV heads with two query heads each, head_dim 64, MLP zero. rope_theta 1e12: the
// upper pairs of a head do not turn within a prompt and hold content, the lower ones hold
// distance. Embeddings are one-hot features of equal norm, which makes RMSNorm a constant.
//
// | layer | KV head 0: its query heads            | KV head 1: its query heads |
// |-------|---------------------------------------|----------------------------|
// | 0     | previous token, previous token        | BOS, the last 128 tokens   |
// | 1     | BOS, induction (else BOS)             | punctuation, BOS           |
// | 2     | tokens of set D, BOS                  | all tokens alike, BOS      |
// | 3..5  | tokens of set F, punctuation          | BOS, the last 128 tokens   |
//
// The induction head reads what layer 0 wrote and copies the token behind an earlier occurrence of
// the current one to the output: the model answers [.. x y .. x] with y. From layer 3 on all layers
// look at the same tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/kv/budget.h"
#include "engine/kv/head_map.h"
#include "models/loaded_model.h"

namespace headroom::testing {

inline constexpr int32_t kHandBuiltLayers = 6;
inline constexpr int32_t kHandBuiltKvHeads = 2;
inline constexpr int32_t kHandBuiltFreezeLayer = 3;

struct HandBuiltOptions {
  bool swapped = false;  // KV heads 0 and 1 change places in every layer: the same function
};
models::LoadedModel MakeHandBuiltModel(const HandBuiltOptions& options = {});

// What each head has to be typed, [num_layers, num_kv_heads] of the model that is not swapped.
std::vector<engine::HeadType> HandBuiltTypes();

// Classes of the vocabulary: BOS is special, ids 1 to 4 are punctuation.
std::shared_ptr<const std::vector<engine::TokenClass>> HandBuiltClasses();

// A prompt without a repeated code: BOS, neutral tokens, a tenth punctuation, and each code once,
// those of D and F in its first half. At least 1,200 tokens.
std::vector<int32_t> HandBuiltPrompt(int32_t num_tokens, uint64_t seed);
// The same that ends with a code of its first half. `answer` gets the code behind that one, which
// the model says next.
std::vector<int32_t> HandBuiltQuestion(int32_t num_tokens, uint64_t seed, int32_t* answer,
                                       int32_t* needle_position);

}  // namespace headroom::testing
