#include "tests/support/hand_built_model.h"

#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/philox.h"

namespace headroom::testing {
namespace {

using engine::HeadType;

constexpr int32_t kHidden = 176;
constexpr int32_t kHeadDim = 64;
constexpr int32_t kGroup = 2;
constexpr int32_t kQueryHeads = kHandBuiltKvHeads * kGroup;
constexpr int32_t kMlp = 8;

// Tokens. A code is a pair of digits.
constexpr int32_t kBos = 0;
constexpr int32_t kFirstPunct = 1;
constexpr int32_t kNumPunct = 4;
constexpr int32_t kFirstNeutral = 5;
constexpr int32_t kNumNeutral = 8;
constexpr int32_t kFirstCode = 16;
constexpr int32_t kDigits = 19;
constexpr int32_t kNumCodes = kDigits * kDigits;
constexpr int32_t kVocab = kFirstCode + kNumCodes;
// First digits 0 to 3 are set F, 4 to 7 set D.
constexpr int32_t kSetDigits = 4;

// Features of the residual stream.
constexpr int32_t kConst = 0;
constexpr int32_t kIsBos = 1;
constexpr int32_t kIsPunct = 2;
constexpr int32_t kIsNeutral = 3;
constexpr int32_t kOwn = 4;                        // two digits
constexpr int32_t kPrevious = kOwn + 2 * kDigits;  // two digits, then "no code"
constexpr int32_t kOutput = kPrevious + 2 * kDigits + 1;
static_assert(kOutput + 2 * kDigits <= kHidden);

// Dimensions of a head: pairs (p, p + 32) that turn by 10^(-0.375 p) a token.
constexpr int32_t kHalf = kHeadDim / 2;
constexpr int32_t kBosDim = 12;
constexpr int32_t kPunctDim = kBosDim + kHalf;
constexpr int32_t kFirstContentPair = 13;  // 19 pairs: the two digits
constexpr int32_t FirstDigitDim(int32_t digit) { return kFirstContentPair + digit; }
constexpr int32_t SecondDigitDim(int32_t digit) { return kHalf + kFirstContentPair + digit; }
constexpr int32_t kPreviousPairs = 7;   // pairs 0 to 6 find the previous token
constexpr int32_t kFirstLocalPair = 6;  // pairs 6 and 7 the last 128

// Keys are features of size 1, and attention divides by sqrt(head_dim).
constexpr double kScale = 8.0;
// Logits. A head that looks at BOS gives it 99 % of any 2,000 tokens.
constexpr double kContentLogit = 14.0;
constexpr double kSinkOfInduction = 22.0;  // where no code matches; half a match is 14
constexpr double kMatchLogit = 28.0;
constexpr double kPreviousLogit = 20.0;  // of each pair
constexpr double kLocalLogit = 20.0;     // a bell over distance: 92 % within 64 tokens, 99.9 in 128

double RopeStep(int32_t pair) { return std::pow(10.0, -0.375 * pair); }

class Matrix {
 public:
  Matrix(int32_t rows, int32_t cols)
      : rows_(rows),
        cols_(cols),
        values_(std::make_shared<std::vector<float>>(static_cast<size_t>(rows * cols), 0.0f)) {}

  float& at(int32_t row, int32_t col) {
    return (
        *values_)[static_cast<size_t>(row) * static_cast<size_t>(cols_) + static_cast<size_t>(col)];
  }
  TensorView Keep(models::ModelWeights& weights) const {
    weights.storage.push_back(values_);
    return {.data = values_->data(), .dtype = DType::kF32, .rows = rows_, .cols = cols_};
  }

 private:
  int32_t rows_;
  int32_t cols_;
  std::shared_ptr<std::vector<float>> values_;
};

Matrix Ones(int32_t cols) {
  Matrix ones(1, cols);
  for (int32_t col = 0; col < cols; ++col) {
    ones.at(0, col) = 1.0f;
  }
  return ones;
}

// A feature of size 1 is so large behind the norm of a layer whose rows have this squared norm.
double NormGain(double squared_norm) { return std::sqrt(kHidden / squared_norm); }

enum class Look : uint8_t {
  kTokenBefore,
  kLocal,
  kBosToken,
  kPunctuation,
  kSetD,
  kSetF,
  kUniform,
  kInduction
};

// One layer under construction. q, k, v and o of head h are its rows (columns of o).
class LayerBuilder {
 public:
  LayerBuilder(double squared_norm, bool swapped)
      : gain_(NormGain(squared_norm)),
        digit_gain_(gain_ / std::sqrt(2.0)),
        swapped_(swapped),
        q_(kQueryHeads * kHeadDim, kHidden),
        k_(kHandBuiltKvHeads * kHeadDim, kHidden),
        v_(kHandBuiltKvHeads * kHeadDim, kHidden),
        o_(kHidden, kQueryHeads * kHeadDim) {}

  // Keys: distance, BOS, punctuation, and the token's own code or that of the token before it.
  void Keys(int32_t kv_head, bool of_previous) {
    const int32_t base = KvBase(kv_head);
    for (int32_t pair = 0; pair < kBosDim; ++pair) {
      k_.at(base + pair, kConst) = Amplitude(1.0, gain_);
    }
    k_.at(base + kBosDim, kIsBos) = Amplitude(1.0, gain_);
    k_.at(base + kPunctDim, kIsPunct) = Amplitude(1.0, gain_);
    const int32_t slot = of_previous ? kPrevious : kOwn;
    for (int32_t digit = 0; digit < kDigits; ++digit) {
      k_.at(base + FirstDigitDim(digit), slot + digit) = Amplitude(1.0, digit_gain_);
      k_.at(base + SecondDigitDim(digit), slot + kDigits + digit) = Amplitude(1.0, digit_gain_);
    }
  }

  // Values: the token's own code, dimensions 0 to 38, the last of them "no code".
  void Values(int32_t kv_head) {
    const int32_t base = KvBase(kv_head);
    for (int32_t index = 0; index < 2 * kDigits; ++index) {
      v_.at(base + index, kOwn + index) = Amplitude(1.0, gain_);
    }
    for (const int32_t feature : {kIsBos, kIsPunct, kIsNeutral}) {
      v_.at(base + 2 * kDigits, feature) = Amplitude(1.0, gain_);
    }
  }
  // What the head reads goes to these features.
  void Write(int32_t kv_head, int32_t in_group, int32_t feature, int32_t count) {
    const int32_t base = QueryBase(kv_head, in_group);
    for (int32_t index = 0; index < count; ++index) {
      o_.at(feature + index, base + index) = 1.0f;
    }
  }

  void Query(int32_t kv_head, int32_t in_group, Look look) {
    const int32_t base = QueryBase(kv_head, in_group);
    switch (look) {
      case Look::kUniform:
        return;
      case Look::kTokenBefore:
        // The key of the token before, turned on by one step, lies where the query does.
        for (int32_t pair = 0; pair < kPreviousPairs; ++pair) {
          Rotated(base, pair, kPreviousLogit, -1.0);
        }
        return;
      case Look::kLocal:
        Rotated(base, kFirstLocalPair, kLocalLogit, 0.0);
        Rotated(base, kFirstLocalPair + 1, kLocalLogit, 0.0);
        return;
      case Look::kBosToken:
        q_.at(base + kBosDim, kConst) = Amplitude(kScale * kContentLogit, gain_);
        return;
      case Look::kPunctuation:
        q_.at(base + kPunctDim, kConst) = Amplitude(kScale * kContentLogit, gain_);
        return;
      case Look::kSetD:
      case Look::kSetF:
        for (int32_t i = 0; i < kSetDigits; ++i) {
          const int32_t digit = look == Look::kSetF ? i : kSetDigits + i;
          q_.at(base + FirstDigitDim(digit), kConst) = Amplitude(kScale * kContentLogit, gain_);
        }
        return;
      case Look::kInduction:
        q_.at(base + kBosDim, kConst) = Amplitude(kScale * kSinkOfInduction, gain_);
        for (int32_t digit = 0; digit < kDigits; ++digit) {
          q_.at(base + FirstDigitDim(digit), kOwn + digit) =
              Amplitude(kScale * kMatchLogit / 2.0, digit_gain_);
          q_.at(base + SecondDigitDim(digit), kOwn + kDigits + digit) =
              Amplitude(kScale * kMatchLogit / 2.0, digit_gain_);
        }
        return;
    }
  }

  models::LayerWeights Finish(models::ModelWeights& weights) const {
    models::LayerWeights made;
    made.input_norm = Ones(kHidden).Keep(weights);
    made.post_attention_norm = Ones(kHidden).Keep(weights);
    made.q_proj = q_.Keep(weights);
    made.k_proj = k_.Keep(weights);
    made.v_proj = v_.Keep(weights);
    made.o_proj = o_.Keep(weights);
    made.gate_proj = Matrix(kMlp, kHidden).Keep(weights);
    made.up_proj = Matrix(kMlp, kHidden).Keep(weights);
    made.down_proj = Matrix(kHidden, kMlp).Keep(weights);
    return made;
  }

 private:
  int32_t KvBase(int32_t kv_head) const { return (swapped_ ? 1 - kv_head : kv_head) * kHeadDim; }
  int32_t QueryBase(int32_t kv_head, int32_t in_group) const {
    return KvBase(kv_head) * kGroup + in_group * kHeadDim;
  }
  // The weight that makes a feature behind the norm so large.
  static float Amplitude(double wanted, double gain) { return static_cast<float>(wanted / gain); }
  // Keys are 1 in the first dimension of each pair.
  void Rotated(int32_t base, int32_t pair, double logit, double steps) {
    const double angle = steps * RopeStep(pair);
    q_.at(base + pair, kConst) = Amplitude(kScale * logit * std::cos(angle), gain_);
    q_.at(base + pair + kHalf, kConst) = Amplitude(kScale * logit * std::sin(angle), gain_);
  }

  double gain_;
  double digit_gain_;
  bool swapped_;
  Matrix q_;
  Matrix k_;
  Matrix v_;
  Matrix o_;
};

models::ModelConfig MakeConfig() {
  models::ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.name = "hand-built";
  config.vocab_size = kVocab;
  config.hidden_size = kHidden;
  config.intermediate_size = kMlp;
  config.num_hidden_layers = kHandBuiltLayers;
  config.num_attention_heads = kQueryHeads;
  config.num_key_value_heads = kHandBuiltKvHeads;
  config.head_dim = kHeadDim;
  config.max_position_embeddings = 8192;
  config.rope_theta = 1e12;
  return config;
}

Matrix Embeddings() {
  Matrix rows(kVocab, kHidden);
  const auto half = static_cast<float>(std::sqrt(0.5));
  for (int32_t id = 0; id < kVocab; ++id) {
    rows.at(id, kConst) = 1.0f;
    if (id >= kFirstCode) {
      rows.at(id, kOwn + (id - kFirstCode) / kDigits) = half;
      rows.at(id, kOwn + kDigits + (id - kFirstCode) % kDigits) = half;
    } else if (id == kBos) {
      rows.at(id, kIsBos) = 1.0f;
    } else {
      rows.at(id, id < kFirstPunct + kNumPunct ? kIsPunct : kIsNeutral) = 1.0f;
    }
  }
  return rows;
}

Matrix Head() {
  Matrix rows(kVocab, kHidden);
  for (int32_t code = 0; code < kNumCodes; ++code) {
    rows.at(kFirstCode + code, kOutput + code / kDigits) = 10.0f;
    rows.at(kFirstCode + code, kOutput + kDigits + code % kDigits) = 10.0f;
  }
  return rows;
}

models::LayerWeights BuildLayer(int32_t layer, bool swapped, models::ModelWeights& weights) {
  // Layer 0 adds the code of the token before to every row.
  LayerBuilder builder(layer == 0 ? 2.0 : 3.0, swapped);
  builder.Keys(0, /*of_previous=*/layer == 1);
  builder.Keys(1, /*of_previous=*/false);
  switch (layer) {
    case 0:
      builder.Values(0);
      builder.Query(0, 0, Look::kTokenBefore);
      builder.Query(0, 1, Look::kTokenBefore);
      builder.Write(0, 0, kPrevious, 2 * kDigits + 1);
      builder.Query(1, 0, Look::kBosToken);
      builder.Query(1, 1, Look::kLocal);
      break;
    case 1:
      builder.Values(0);
      builder.Query(0, 0, Look::kBosToken);
      builder.Query(0, 1, Look::kInduction);
      builder.Write(0, 1, kOutput, 2 * kDigits);
      builder.Query(1, 0, Look::kPunctuation);
      builder.Query(1, 1, Look::kBosToken);
      break;
    case 2:
      builder.Query(0, 0, Look::kSetD);
      builder.Query(0, 1, Look::kBosToken);
      builder.Query(1, 0, Look::kUniform);
      builder.Query(1, 1, Look::kBosToken);
      break;
    default:
      builder.Query(0, 0, Look::kSetF);
      builder.Query(0, 1, Look::kPunctuation);
      builder.Query(1, 0, Look::kBosToken);
      builder.Query(1, 1, Look::kLocal);
      break;
  }
  return builder.Finish(weights);
}

template <typename T>
void Shuffle(std::vector<T>& items, const Philox& random, uint64_t& counter) {
  for (size_t i = items.size(); i > 1; --i) {
    std::swap(items[i - 1],
              items[static_cast<size_t>(random.Uniform(counter++) * static_cast<double>(i))]);
  }
}

bool IsOfASet(int32_t id) {
  return id >= kFirstCode && (id - kFirstCode) / kDigits < 2 * kSetDigits;
}

}  // namespace

models::LoadedModel MakeHandBuiltModel(const HandBuiltOptions& options) {
  models::LoadedModel model;
  model.path = "hand-built";
  model.name = "hand-built";
  model.config = MakeConfig();
  models::ModelWeights& weights = model.weights;
  weights.embed_tokens = Embeddings().Keep(weights);
  weights.lm_head = Head().Keep(weights);
  weights.final_norm = Ones(kHidden).Keep(weights);
  for (int32_t layer = 0; layer < kHandBuiltLayers; ++layer) {
    weights.layers.push_back(BuildLayer(layer, options.swapped, weights));
  }
  return model;
}

std::vector<HeadType> HandBuiltTypes() {
  std::vector<HeadType> types = {HeadType::kSpecial, HeadType::kLocal, HeadType::kDense,
                                 HeadType::kPunct,   HeadType::kHeavy, HeadType::kDense};
  for (int32_t layer = kHandBuiltFreezeLayer; layer < kHandBuiltLayers; ++layer) {
    types.push_back(HeadType::kHeavy);
    types.push_back(HeadType::kLocal);
  }
  return types;
}

std::shared_ptr<const std::vector<engine::TokenClass>> HandBuiltClasses() {
  auto classes = std::make_shared<std::vector<engine::TokenClass>>(static_cast<size_t>(kVocab),
                                                                   engine::TokenClass::kOther);
  (*classes)[kBos] = engine::TokenClass::kSpecial;
  for (int32_t id = kFirstPunct; id < kFirstPunct + kNumPunct; ++id) {
    (*classes)[static_cast<size_t>(id)] = engine::TokenClass::kPunctuation;
  }
  return classes;
}

std::vector<int32_t> HandBuiltPrompt(int32_t num_tokens, uint64_t seed) {
  HEADROOM_CHECK(num_tokens >= 1200);
  const Philox random(seed, 7);
  uint64_t counter = 0;
  std::vector<int32_t> early;
  std::vector<int32_t> late;
  for (int32_t id = kFirstCode; id < kVocab; ++id) {
    const bool goes_early = IsOfASet(id) || random.Uniform(counter++) < 0.5;
    (goes_early ? early : late).push_back(id);
  }
  const auto half = static_cast<size_t>(num_tokens / 2);
  while (early.size() + 1 < half) {
    early.push_back(early.size() % 7 == 0 ? kFirstPunct + static_cast<int32_t>(early.size() % 4)
                                          : kFirstNeutral + static_cast<int32_t>(early.size() % 8));
  }
  while (1 + early.size() + late.size() < static_cast<size_t>(num_tokens)) {
    late.push_back(late.size() % 7 == 0 ? kFirstPunct + static_cast<int32_t>(late.size() % 4)
                                        : kFirstNeutral + static_cast<int32_t>(late.size() % 8));
  }
  Shuffle(early, random, counter);
  Shuffle(late, random, counter);
  std::vector<int32_t> prompt = {kBos};
  prompt.insert(prompt.end(), early.begin(), early.end());
  prompt.insert(prompt.end(), late.begin(), late.end());
  return prompt;
}

std::vector<int32_t> HandBuiltQuestion(int32_t num_tokens, uint64_t seed, int32_t* answer,
                                       int32_t* needle_position) {
  std::vector<int32_t> prompt = HandBuiltPrompt(num_tokens, seed);
  prompt.pop_back();
  for (size_t i = prompt.size() / 4;; ++i) {
    HEADROOM_CHECK(i + 1 < prompt.size() / 2);
    if (prompt[i] >= kFirstCode && prompt[i + 1] >= kFirstCode) {
      *answer = prompt[i + 1];
      *needle_position = static_cast<int32_t>(i) + 1;
      prompt.push_back(prompt[i]);
      return prompt;
    }
  }
}

}  // namespace headroom::testing
