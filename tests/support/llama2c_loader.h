// Reads the checkpoints and vocabularies of llama2.c (version 0), for golden tests only.
//
// Source of the formats: karpathy/llama2.c run.c (memory_map_weights, build_tokenizer).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "models/config.h"
#include "models/weights.h"

namespace headroom::testing {

struct Llama2cModel {
  models::ModelConfig config;    // RoPE pairs interleaved, rms_norm_eps 1e-5, theta 10000
  models::ModelWeights weights;  // f32, into the mapped file
};

// NAME.bin: seven int32 (dim, hidden, layers, heads, kv heads, vocab, seq len; a negative vocab
// means untied) and the f32 tensors of all layers, kind by kind.
StatusOr<Llama2cModel> LoadLlama2cModel(const std::string& path);

// tokN.bin: enough to print what the model says.
class Llama2cVocabulary {
 public:
  static StatusOr<Llama2cVocabulary> Load(const std::string& path, int32_t vocab_size);

  // The text of a token that follows `previous`: byte tokens as their byte, and no leading space
  // after BOS (1).
  std::string Decode(int32_t previous, int32_t token) const;
  // The same over a whole sequence that begins with BOS; BOS itself has no text.
  std::string DecodeAll(const std::vector<int32_t>& tokens) const;

  const std::vector<std::string>& pieces() const { return pieces_; }
  const std::vector<float>& scores() const { return scores_; }

 private:
  std::vector<std::string> pieces_;  // [vocab]
  std::vector<float> scores_;        // [vocab]
};

}  // namespace headroom::testing
