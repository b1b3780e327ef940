#include "tests/support/llama2c_loader.h"

#include <array>
#include <cstdlib>
#include <memory>
#include <span>

#include "base/mapped_file.h"
#include "models/byte_reader.h"

namespace headroom::testing {
namespace {

using models::ByteReader;
using models::LayerWeights;
using models::ModelConfig;

constexpr int32_t kBos = 1;

// Hands out consecutive f32 tensors of the file.
class TensorCursor {
 public:
  explicit TensorCursor(ByteReader reader) : reader_(reader) {}

  TensorView Next(int64_t rows, int64_t cols) {
    std::span<const uint8_t> bytes;
    const TensorView view{.dtype = DType::kF32, .rows = rows, .cols = cols};
    if (!reader_.Take(static_cast<uint64_t>(view.num_bytes()), bytes)) {
      complete_ = false;
      return view;
    }
    TensorView placed = view;
    placed.data = bytes.data();
    return placed;
  }
  bool complete() const { return complete_; }
  uint64_t remaining() const { return reader_.remaining(); }

 private:
  ByteReader reader_;
  bool complete_ = true;
};

// The file holds each kind of tensor for all layers before the next kind.
void ReadKind(TensorCursor& cursor, std::vector<LayerWeights>& layers,
              TensorView LayerWeights::*kind, int64_t rows, int64_t cols) {
  for (LayerWeights& layer : layers) {
    layer.*kind = cursor.Next(rows, cols);
  }
}

void ReadTensors(const ModelConfig& config, TensorCursor& cursor, models::ModelWeights& weights) {
  const int64_t hidden = config.hidden_size;
  const int64_t intermediate = config.intermediate_size;
  std::vector<LayerWeights>& layers = weights.layers;
  layers.resize(static_cast<size_t>(config.num_hidden_layers));
  weights.embed_tokens = cursor.Next(config.vocab_size, hidden);
  ReadKind(cursor, layers, &LayerWeights::input_norm, 1, hidden);
  ReadKind(cursor, layers, &LayerWeights::q_proj, config.query_width(), hidden);
  ReadKind(cursor, layers, &LayerWeights::k_proj, config.kv_width(), hidden);
  ReadKind(cursor, layers, &LayerWeights::v_proj, config.kv_width(), hidden);
  ReadKind(cursor, layers, &LayerWeights::o_proj, hidden, config.query_width());
  ReadKind(cursor, layers, &LayerWeights::post_attention_norm, 1, hidden);
  ReadKind(cursor, layers, &LayerWeights::gate_proj, intermediate, hidden);
  ReadKind(cursor, layers, &LayerWeights::down_proj, hidden, intermediate);
  ReadKind(cursor, layers, &LayerWeights::up_proj, intermediate, hidden);
  weights.final_norm = cursor.Next(1, hidden);
  // Two tables of sines and cosines, which we compute ourselves.
  cursor.Next(config.max_position_embeddings, config.head_dim / 2);
  cursor.Next(config.max_position_embeddings, config.head_dim / 2);
  weights.lm_head =
      config.tie_word_embeddings ? weights.embed_tokens : cursor.Next(config.vocab_size, hidden);
}

StatusOr<ModelConfig> ReadConfig(ByteReader& reader, const std::string& path) {
  std::array<int32_t, 7> header{};
  if (!reader.Read(header)) {
    return InvalidArgument("{}: shorter than its header", path);
  }
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.hidden_size = header[0];
  config.intermediate_size = header[1];
  config.num_hidden_layers = header[2];
  config.num_attention_heads = header[3];
  config.num_key_value_heads = header[4];
  config.tie_word_embeddings = header[5] > 0;
  config.vocab_size = header[5] > 0 ? header[5] : -header[5];
  config.max_position_embeddings = header[6];
  config.head_dim =
      config.num_attention_heads > 0 ? config.hidden_size / config.num_attention_heads : 0;
  config.rope_pairing = models::RopePairing::kInterleaved;
  HEADROOM_RETURN_IF_ERROR(models::ValidateConfig(config));
  return config;
}

// "<0x0A>" is the byte 10.
bool IsBytePiece(const std::string& piece) {
  return piece.size() == 6 && piece.starts_with("<0x") && piece.ends_with(">");
}

}  // namespace

StatusOr<Llama2cModel> LoadLlama2cModel(const std::string& path) {
  HEADROOM_ASSIGN_OR_RETURN(std::shared_ptr<MappedFile> file, MappedFile::Open(path));
  ByteReader reader(file->bytes());
  Llama2cModel model;
  HEADROOM_ASSIGN_OR_RETURN(model.config, ReadConfig(reader, path));
  TensorCursor cursor(reader);
  ReadTensors(model.config, cursor, model.weights);
  if (!cursor.complete() || cursor.remaining() != 0) {
    return InvalidArgument("{}: {} bytes do not hold the tensors of its header exactly", path,
                           file->bytes().size());
  }
  model.weights.storage.push_back(std::move(file));
  return model;
}

StatusOr<Llama2cVocabulary> Llama2cVocabulary::Load(const std::string& path, int32_t vocab_size) {
  HEADROOM_ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> file, MappedFile::Open(path));
  ByteReader reader(file->bytes());
  int32_t max_token_length = 0;
  bool whole = reader.Read(max_token_length);
  Llama2cVocabulary vocabulary;
  for (int32_t id = 0; whole && id < vocab_size; ++id) {
    float score = 0.0f;
    int32_t length = 0;
    std::span<const uint8_t> text;
    whole = reader.Read(score) && reader.Read(length) && length >= 0 &&
            reader.Take(static_cast<uint64_t>(length), text);
    vocabulary.scores_.push_back(score);
    vocabulary.pieces_.emplace_back(reinterpret_cast<const char*>(text.data()), text.size());
  }
  if (!whole || reader.remaining() != 0) {
    return InvalidArgument("{}: does not hold {} tokens exactly", path, vocab_size);
  }
  return vocabulary;
}

std::string Llama2cVocabulary::Decode(int32_t previous, int32_t token) const {
  const std::string& piece = pieces_.at(static_cast<size_t>(token));
  if (IsBytePiece(piece)) {
    return std::string(1, static_cast<char>(std::strtol(piece.c_str() + 1, nullptr, 16)));
  }
  return previous == kBos && piece.starts_with(" ") ? piece.substr(1) : piece;
}

std::string Llama2cVocabulary::DecodeAll(const std::vector<int32_t>& tokens) const {
  std::string text;
  for (size_t i = 1; i < tokens.size(); ++i) {
    text += Decode(tokens[i - 1], tokens[i]);
  }
  return text;
}

}  // namespace headroom::testing
