// Hashes that tell models, tokenizers and prompts apart. All are "sha256:<hex>" and the same on
// every machine.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/config.h"
#include "models/loaded_model.h"
#include "models/tokenizer/tokenizer.h"
#include "models/weights.h"

namespace headroom::models {

// Of what changes the computation but no weight: layers, heads, widths, RoPE, norms, tied
// embeddings. Not of how a file lays the model out (rope_pairing: GGUF files have their rows
// permuted), of its longest context, nor of padding in the vocabulary.
std::string ArchHash(const ModelConfig& config);

// Of name, shape, type and content of every layer's q, k, v and o projections as they lie in the
// file: two quantisations of one model differ. Reads all of them, each tensor by one of
// `num_threads` >= 1.
std::string AttentionWeightsHash(const ModelWeights& weights, int num_threads);
// The types of those tensors: "q4_1", or "bf16+f32" where they differ.
std::string AttentionWeightsDType(const ModelWeights& weights);

// Of every piece with its type and of the ids with a meaning.
std::string VocabHash(const Tokenizer& tokenizer);

// Of a prompt's token ids, and of a set of prompts whatever their order: a corpus.
std::string PromptHash(std::span<const int32_t> ids);
std::string CorpusHash(std::vector<std::string> prompt_hashes);

}  // namespace headroom::models
