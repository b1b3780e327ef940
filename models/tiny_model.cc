#include "models/tiny_model.h"

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/philox.h"
#include "models/architectures/registry.h"
#include "models/model_files.h"

namespace headroom::models {
namespace {

constexpr uint64_t kSeed = 20240229;
constexpr int32_t kNumBytes = 256;
constexpr int32_t kEndId = kNumBytes + 1;  // <|im_end|>, after <|im_start|>

constexpr const char* kChatTemplate =
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

ModelConfig TinyConfig() {
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.name = "tiny";
  config.vocab_size = kEndId + 1;
  config.hidden_size = 64;
  config.intermediate_size = 176;
  config.num_hidden_layers = 4;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 16;
  config.max_position_embeddings = 2048;
  config.tie_word_embeddings = false;
  return config;
}

// Ids that the model may well produce: printable ASCII, the line feed and the end of a turn.
bool IsLikely(int64_t id) { return (id >= 32 && id < 127) || id == '\n' || id == kEndId; }

// Fills one tensor with values of the given standard deviation, rounded to bf16 so that every
// backend holds them exactly. A uniform distribution does as well as a normal one here.
void FillUniform(const Philox& random, double deviation, std::vector<uint16_t>& values) {
  const double reach = deviation * std::sqrt(3.0);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = FloatToBf16(static_cast<float>((2.0 * random.Uniform(i) - 1.0) * reach));
  }
}

// Owns what it makes, for ModelWeights.storage.
struct TinyStorage {
  std::vector<std::vector<uint16_t>> blocks;
};

NamedTensor MakeTensor(const TensorRule& rule, uint64_t stream, TinyStorage& storage) {
  NamedTensor tensor;
  tensor.name = rule.name;
  tensor.view.dtype = DType::kBF16;
  const bool vector = rule.rows == 0;
  const int64_t rows = vector ? 1 : rule.rows;
  tensor.shape = vector ? std::vector<int64_t>{rule.cols} : std::vector<int64_t>{rows, rule.cols};
  tensor.view.rows = rows;
  tensor.view.cols = rule.cols;
  std::vector<uint16_t> values(static_cast<size_t>(rows * rule.cols), FloatToBf16(1.0f));
  if (rule.name == "lm_head.weight") {
    // Logits of likely ids spread by about 3; the rest stay at 0, far below their maximum.
    FillUniform(Philox(kSeed, stream), 3.0 / std::sqrt(static_cast<double>(rule.cols)), values);
    for (int64_t id = 0; id < rows; ++id) {
      if (!IsLikely(id)) {
        std::fill_n(values.begin() + id * rule.cols, rule.cols, uint16_t{0});
      }
    }
  } else if (rule.name == "model.embed_tokens.weight") {
    FillUniform(Philox(kSeed, stream), 1.0, values);
  } else if (!vector) {
    FillUniform(Philox(kSeed, stream), 1.0 / std::sqrt(static_cast<double>(rule.cols)), values);
  }
  storage.blocks.push_back(std::move(values));
  tensor.view.data = storage.blocks.back().data();
  return tensor;
}

}  // namespace

StatusOr<LoadedModel> MakeTinyModel() {
  LoadedModel model;
  model.config = TinyConfig();
  model.eos_token_ids = {kEndId};
  model.tokenizer = CreateByteTokenizer({"<|im_start|>", "<|im_end|>"}, -1, kEndId - kNumBytes);
  model.chat_template = kChatTemplate;
  const Architecture* architecture = FindHuggingFaceArchitecture(model.config.architecture);
  ModelWeights shapes;
  shapes.layers.resize(static_cast<size_t>(model.config.num_hidden_layers));
  auto storage = std::make_shared<TinyStorage>();
  std::vector<NamedTensor> tensors;
  uint64_t stream = 0;
  for (const TensorRule& rule :
       architecture->tensor_rules(model.config, TensorNaming::kHuggingFace, shapes)) {
    if (rule.required) {
      tensors.push_back(MakeTensor(rule, stream++, *storage));
    }
  }
  HEADROOM_RETURN_IF_ERROR(FinishModel(tensors, TensorNaming::kHuggingFace, "builtin:tiny", model));
  model.weights.storage.push_back(std::move(storage));
  return model;
}

}  // namespace headroom::models
