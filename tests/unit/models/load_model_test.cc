#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "models/loaded_model.h"
#include "tests/support/model_file_writers.h"
#include "tests/support/test_data.h"

namespace headroom::models {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::GgufWriter;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TemporaryFolder;
using testing::TinyLlamaGguf;

std::string ErrorOf(const std::string& path) {
  const StatusOr<LoadedModel> model = LoadModel(path);
  return model.ok() ? "no error" : StatusMessage(model.status());
}

std::string ErrorOf(const GgufWriter& writer) {
  const TemporaryFolder folder("load_model_gguf");
  return ErrorOf(folder.Write("m.gguf", writer.Build()));
}

TEST(LoadModelTest, ReadsALlamaFromGguf) {
  const TemporaryFolder folder("load_model_llama");
  const GgufWriter writer = TinyLlamaGguf();
  const StatusOr<LoadedModel> model = LoadModel(folder.Write("small.gguf", writer.Build()));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->name, "small");
  EXPECT_EQ(model->config.name, "tiny llama");
  EXPECT_EQ(model->config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(model->config.vocab_size, 5);
  EXPECT_EQ(model->config.head_dim, 4);
  EXPECT_EQ(model->config.rms_norm_eps, 1e-6f);
  EXPECT_EQ(model->config.rope_theta, 5000.0);
  EXPECT_EQ(model->config.rope_pairing, RopePairing::kInterleaved);
  EXPECT_TRUE(model->config.tie_word_embeddings);
  EXPECT_EQ(model->weights.lm_head.data, model->weights.embed_tokens.data);
  EXPECT_EQ(model->num_parameters, 5 * 8 + 8 + 2 * 8 + 2 * 64 + 2 * 32 + 3 * 96);
  EXPECT_EQ(model->tokenizer, nullptr);
  ASSERT_EQ(model->weights.layers.size(), 1u);
  const LayerWeights& layer = model->weights.layers[0];
  EXPECT_EQ(layer.down_proj.rows, 8);
  EXPECT_EQ(layer.down_proj.cols, 12);
  // The second tensor of the file, 40 floats and alignment after the first.
  EXPECT_EQ(0, std::memcmp(model->weights.final_norm.data, writer.data.data() + 160, 32));
}

TEST(LoadModelTest, TakesAnOutputMatrixOfItsOwn) {
  const TemporaryFolder folder("load_model_untied");
  GgufWriter writer = TinyLlamaGguf();
  writer.F32Tensor("output.weight", {8, 5});
  const StatusOr<LoadedModel> model = LoadModel(folder.Write("m.gguf", writer.Build()));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_FALSE(model->config.tie_word_embeddings);
  EXPECT_NE(model->weights.lm_head.data, model->weights.embed_tokens.data);
}

TEST(LoadModelTest, ReadsFrequencyFactorsAndLinearScaling) {
  const TemporaryFolder folder("load_model_rope");
  GgufWriter writer = TinyLlamaGguf();
  writer.String("llama.rope.scaling.type", "linear");
  writer.Number<float>("llama.rope.scaling.factor", testing::kF32, 4.0f);
  writer.F32Tensor("rope_freqs.weight", {2});
  const float factors[2] = {1.0f, 8.0f};
  std::memcpy(writer.data.data() + writer.tensors.back().offset, factors, sizeof(factors));
  const StatusOr<LoadedModel> model = LoadModel(folder.Write("m.gguf", writer.Build()));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->config.rope_scaling, RopeScaling::kLinear);
  EXPECT_EQ(model->config.rope_factor, 4.0);
  EXPECT_THAT(model->config.rope_freq_factors, ElementsAre(1.0f, 8.0f));
}

TEST(LoadModelTest, ReportsMissingExtraAndMisshapedTensorsTogether) {
  GgufWriter writer = TinyLlamaGguf();
  writer.tensors[3].name = "blk.0.attn_qkv.weight";  // attn_q is missing, this is extra
  std::swap(writer.tensors[10].dims[0], writer.tensors[10].dims[1]);  // ffn_down
  EXPECT_THAT(ErrorOf(writer),
              AllOf(HasSubstr("1 missing: \"blk.0.attn_q.weight\""),
                    HasSubstr("1 not known to the architecture: \"blk.0.attn_qkv.weight\""),
                    HasSubstr("1 misshaped: \"blk.0.ffn_down.weight\""),
                    HasSubstr("is [12, 8], wanted [8, 12]")));
}

TEST(LoadModelTest, RefusesGgufModelsThatItCannotRun) {
  const std::pair<std::function<void(GgufWriter&)>, const char*> cases[] = {
      {[](GgufWriter& w) { w.Number<uint32_t>("llama.expert_count", testing::kU32, 8); },
       "mixtures of experts"},
      {[](GgufWriter& w) { w.Number<uint32_t>("llama.attention.value_length", testing::kU32, 8); },
       "\"llama.attention.value_length\" is 8, wanted 4"},
      {[](GgufWriter& w) { w.Number<uint32_t>("llama.rope.dimension_count", testing::kU32, 2); },
       "rotating a part of a head"},
      {[](GgufWriter& w) { w.String("llama.rope.scaling.type", "yarn"); }, "\"yarn\""},
      {[](GgufWriter& w) { w.Number<uint16_t>("split.count", testing::kU16, 3); },
       "split over several files"},
      {[](GgufWriter& w) { w.Number<uint32_t>("llama.vocab_size", testing::kU32, 6); },
       "rows of token_embd.weight"},
      {[](GgufWriter& w) { w.F32Tensor("rope_freqs.weight", {3}); }, "wanted [2] f32"},
      {[](GgufWriter& w) { w.Number<uint32_t>("llama.attention.key_length", testing::kU32, 3); },
       "head_dim is 3, wanted an even number"},
      {[](GgufWriter& w) { w.Strings("tokenizer.ggml.tokens", {"a"}); },
       "without \"tokenizer.ggml.model\""},
      {[](GgufWriter& w) {
         w.String("tokenizer.ggml.model", "llama");
         w.Strings("tokenizer.ggml.tokens", {"a", "b", "c", "d", "e", "f"});
       },
       "6 tokens, wanted at most the 5 rows"},
  };
  for (const auto& [change, error] : cases) {
    GgufWriter writer = TinyLlamaGguf();
    change(writer);
    EXPECT_THAT(ErrorOf(writer), HasSubstr(error));
  }
  GgufWriter other;
  other.String("general.architecture", "mamba");
  EXPECT_THAT(ErrorOf(other), HasSubstr("\"mamba\", wanted one of: llama"));
  GgufWriter empty;
  empty.String("general.architecture", "llama");
  EXPECT_THAT(ErrorOf(empty), HasSubstr("metadata \"llama.embedding_length\" is missing"));
}

TEST(LoadModelTest, BuiltinNeedleModelsAreTheFilesOfTheTree) {
  for (const char* name : {"needle-1hop", "needle-2hop"}) {
    const StatusOr<LoadedModel> inside = LoadModel(std::string("builtin:") + name);
    const StatusOr<LoadedModel> outside =
        LoadModel(testing::SourcePath(std::string("tests/data/") + name + "/"));
    ASSERT_TRUE(inside.ok()) << inside.status();
    ASSERT_TRUE(outside.ok()) << outside.status();
    EXPECT_EQ(inside->name, name);
    EXPECT_EQ(outside->name, name);
    EXPECT_EQ(inside->num_parameters, 1173120);
    EXPECT_EQ(inside->tokenizer, nullptr);
    EXPECT_FALSE(inside->chat_template.has_value());
    EXPECT_EQ(inside->weights.embed_tokens.dtype, DType::kF16);
    const TensorView& ours = inside->weights.layers[5].down_proj;
    const TensorView& theirs = outside->weights.layers[5].down_proj;
    ASSERT_EQ(ours.num_bytes(), theirs.num_bytes());
    EXPECT_EQ(0, std::memcmp(ours.data, theirs.data, static_cast<size_t>(ours.num_bytes())));
  }
}

TEST(LoadModelTest, BuiltinTinyHasATokenizerATemplateAndTheSameWeightsEachTime) {
  const StatusOr<LoadedModel> first = LoadModel("builtin:tiny");
  const StatusOr<LoadedModel> second = LoadModel("builtin:tiny");
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(second.ok());
  ASSERT_NE(first->tokenizer, nullptr);
  EXPECT_EQ(first->tokenizer->vocab_size(), first->config.vocab_size);
  EXPECT_EQ(first->tokenizer->FindSpecial("<|im_end|>"), 257);
  EXPECT_EQ(first->tokenizer->eos_id(), 257);
  EXPECT_THAT(first->eos_token_ids, ElementsAre(257));
  EXPECT_TRUE(first->chat_template.has_value());
  const TensorView& a = first->weights.lm_head;
  const TensorView& b = second->weights.lm_head;
  EXPECT_NE(a.data, b.data);
  EXPECT_EQ(0, std::memcmp(a.data, b.data, static_cast<size_t>(a.num_bytes())));
  const auto* values = static_cast<const uint16_t*>(a.data);
  EXPECT_EQ(values[0], 0);  // byte 0 never wins
  EXPECT_NE(values['a' * 64], 0);
}

TEST(LoadModelTest, NamesTheBuiltinModelsWhenAskedForAnother) {
  EXPECT_THAT(ErrorOf("builtin:needle"),
              HasSubstr("builtin:needle: no such model, wanted one of: tiny, needle-1hop, "
                        "needle-2hop"));
}

TEST(LoadModelTest, SaysWhatIsWrongWithAPath) {
  EXPECT_THAT(ErrorOf("/nonexistent/model.gguf"),
              HasSubstr("/nonexistent/model.gguf: cannot open"));
  const TemporaryFolder folder("load_model_empty");
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr("config.json: cannot open"));
  EXPECT_THAT(ErrorOf(folder.Write("empty.gguf", std::string_view(""))),
              HasSubstr("empty.gguf: offset 0: not a GGUF file"));
}

// --- Hugging Face directories ---

constexpr const char* kOneLayer =
    R"({"architectures":["LlamaForCausalLM"],"vocab_size":3,"hidden_size":2,"intermediate_size":2,)"
    R"("num_hidden_layers":1,"num_attention_heads":1,"tie_word_embeddings":true,"eos_token_id":2)";

struct Shape {
  const char* name;
  const char* shape;
  int num_elements;
};
constexpr Shape kOneLayerTensors[] = {
    {"model.embed_tokens.weight", "[3,2]", 6},
    {"model.norm.weight", "[2]", 2},
    {"model.layers.0.input_layernorm.weight", "[2]", 2},
    {"model.layers.0.self_attn.q_proj.weight", "[2,2]", 4},
    {"model.layers.0.self_attn.k_proj.weight", "[2,2]", 4},
    {"model.layers.0.self_attn.v_proj.weight", "[2,2]", 4},
    {"model.layers.0.self_attn.o_proj.weight", "[2,2]", 4},
    {"model.layers.0.post_attention_layernorm.weight", "[2]", 2},
    {"model.layers.0.mlp.gate_proj.weight", "[2,2]", 4},
    {"model.layers.0.mlp.up_proj.weight", "[2,2]", 4},
    {"model.layers.0.mlp.down_proj.weight", "[2,2]", 4},
};

// A file of the one-layer model's tensors [begin, end), in f32; `padding` spaces end the header.
std::vector<uint8_t> Shard(size_t begin, size_t end, int padding = 0) {
  std::string header = "{";
  int offset = 0;
  for (size_t i = begin; i < end; ++i) {
    const Shape& tensor = kOneLayerTensors[i];
    const int size = 4 * tensor.num_elements;
    header += fmt::format("{}\"{}\":{{\"dtype\":\"F32\",\"shape\":{},\"data_offsets\":[{},{}]}}",
                          i == begin ? "" : ",", tensor.name, tensor.shape, offset, offset + size);
    offset += size;
  }
  header += "}" + std::string(static_cast<size_t>(padding), ' ');
  return testing::Safetensors(header, static_cast<size_t>(offset));
}

// The index that places the first `split` tensors in a.safetensors and the rest in b.safetensors.
std::string Index(size_t split) {
  std::string text = "{\"weight_map\":{";
  for (size_t i = 0; i < std::size(kOneLayerTensors); ++i) {
    text += fmt::format("{}\"{}\":\"{}.safetensors\"", i == 0 ? "" : ",", kOneLayerTensors[i].name,
                        i < split ? "a" : "b");
  }
  return text + "}}";
}

constexpr size_t kAll = std::size(kOneLayerTensors);

TEST(LoadHuggingFaceTest, ReadsOneFileAndTheUnionOfEosIds) {
  const TemporaryFolder folder("load_hf_one");
  folder.Write("config.json", std::string(kOneLayer) + "}");
  folder.Write("generation_config.json",
               std::string_view(R"({"eos_token_id":[1,2],"temperature":0.5})"));
  folder.Write("model.safetensors", Shard(0, kAll));
  const StatusOr<LoadedModel> model = LoadModel(folder.path());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(model->eos_token_ids, ElementsAre(1, 2));
  EXPECT_EQ(model->generation_defaults.temperature, 0.5f);
  EXPECT_EQ(model->config.rope_pairing, RopePairing::kHalves);
  EXPECT_EQ(model->weights.lm_head.data, model->weights.embed_tokens.data);
}

TEST(LoadHuggingFaceTest, CopiesDataThatLiesUnaligned) {
  for (int padding = 0; padding < 4; ++padding) {
    const TemporaryFolder folder("load_hf_unaligned");
    folder.Write("config.json", std::string(kOneLayer) + "}");
    const std::vector<uint8_t> bytes = Shard(0, kAll, padding);
    folder.Write("model.safetensors", bytes);
    const StatusOr<LoadedModel> model = LoadModel(folder.path());
    ASSERT_TRUE(model.ok()) << model.status();
    const TensorView& last = model->weights.layers[0].down_proj;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(last.data) % 4, 0u);
    EXPECT_EQ(0, std::memcmp(last.data, bytes.data() + bytes.size() - 16, 16));
  }
}

TEST(LoadHuggingFaceTest, ReadsSeveralFilesByTheirIndex) {
  const TemporaryFolder folder("load_hf_shards");
  folder.Write("config.json", std::string(kOneLayer) + "}");
  folder.Write("a.safetensors", Shard(0, 4));
  const std::vector<uint8_t> second = Shard(4, kAll);
  folder.Write("b.safetensors", second);
  folder.Write("model.safetensors.index.json", Index(4));
  const StatusOr<LoadedModel> model = LoadModel(folder.path());
  ASSERT_TRUE(model.ok()) << model.status();
  const LayerWeights& layer = model->weights.layers[0];
  EXPECT_EQ(0, std::memcmp(layer.down_proj.data, second.data() + second.size() - 16, 16));
  EXPECT_NE(layer.q_proj.data, nullptr);
}

TEST(LoadHuggingFaceTest, RefusesFilesThatDoNotAgreeWithTheirIndex) {
  const TemporaryFolder folder("load_hf_disagree");
  folder.Write("config.json", std::string(kOneLayer) + "}");
  folder.Write("model.safetensors.index.json", Index(4));
  folder.Write("a.safetensors", Shard(0, 4));
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr("b.safetensors: cannot open"));
  folder.Write("b.safetensors", Shard(3, kAll));  // q_proj is in both
  EXPECT_THAT(ErrorOf(folder.path()),
              HasSubstr("tensor \"model.layers.0.self_attn.q_proj.weight\", which the index places "
                        "in a.safetensors"));
  folder.Write("b.safetensors", Shard(5, kAll));  // k_proj is in none
  EXPECT_THAT(ErrorOf(folder.path()),
              HasSubstr("\"model.layers.0.self_attn.k_proj.weight\" is not in b.safetensors"));
}

TEST(LoadHuggingFaceTest, RefusesALinkThatTheIndexNames) {
  const TemporaryFolder folder("load_hf_link");
  folder.Write("config.json", std::string(kOneLayer) + "}");
  folder.Write("model.safetensors.index.json", Index(kAll));
  const std::string target = folder.Write("target", Shard(0, kAll));
  std::filesystem::create_symlink(target, folder.path() + "/a.safetensors");
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr("must not be a link"));
}

// The layout of a hub cache: MODEL/snapshots/REVISION/NAME -> ../../blobs/HASH.
TEST(LoadHuggingFaceTest, FollowsTheLinksOfAHubCacheAndNoOthers) {
  const TemporaryFolder cache("load_hf_cache");
  const std::string snapshot = cache.path() + "/snapshots/main";
  std::filesystem::create_directories(snapshot);
  std::filesystem::create_directories(cache.path() + "/blobs");
  const std::string config = std::string(kOneLayer) + "}";
  cache.Write("blobs/11", config);
  cache.Write("blobs/22", Index(kAll));
  cache.Write("blobs/33", Shard(0, kAll));
  std::filesystem::create_symlink("../../blobs/11", snapshot + "/config.json");
  std::filesystem::create_symlink("../../blobs/22", snapshot + "/model.safetensors.index.json");
  std::filesystem::create_symlink("../../blobs/33", snapshot + "/a.safetensors");
  const StatusOr<LoadedModel> model = LoadModel(snapshot);
  EXPECT_TRUE(model.ok()) << model.status();

  cache.Write("elsewhere", Shard(0, kAll));
  std::filesystem::remove(snapshot + "/a.safetensors");
  std::filesystem::create_symlink("../../elsewhere", snapshot + "/a.safetensors");
  EXPECT_THAT(ErrorOf(snapshot), HasSubstr("must not be a link"));
}

TEST(LoadHuggingFaceTest, RefusesOtherArchitecturesAndIdsOutsideTheVocabulary) {
  const TemporaryFolder folder("load_hf_refuse");
  folder.Write("model.safetensors", Shard(0, kAll));
  std::string other = std::string(kOneLayer) + "}";
  other.replace(other.find("Llama"), 5, "Mamba");
  folder.Write("config.json", other);
  EXPECT_THAT(ErrorOf(folder.path()),
              HasSubstr("\"MambaForCausalLM\", wanted one of: LlamaForCausalLM"));
  folder.Write("config.json", std::string(kOneLayer) + "}");
  folder.Write("generation_config.json", std::string_view(R"({"eos_token_id":3})"));
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr("end-of-sequence ids 2..3, wanted 0..2"));
}

TEST(LoadHuggingFaceTest, ReportsTensorsThatDoNotFit) {
  const TemporaryFolder folder("load_hf_tensors");
  std::string config = std::string(kOneLayer) + "}";
  config.replace(config.find("\"tie_word_embeddings\":true"), 26, "\"tie_word_embeddings\":false");
  folder.Write("config.json", config);
  folder.Write("model.safetensors", Shard(0, kAll));
  EXPECT_THAT(ErrorOf(folder.path()),
              AllOf(HasSubstr("1 missing: \"lm_head.weight\""), Not(HasSubstr("misshaped"))));
}

TEST(LoadModelTest, ReadsSmolLm2) {
  const auto path = testing::SmolLm2Path();
  if (!path.has_value()) {
    GTEST_SKIP() << "the SmolLM2 GGUF is absent";
  }
  const StatusOr<LoadedModel> model = LoadModel(*path);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->config.num_hidden_layers, 30);
  EXPECT_EQ(model->config.num_key_value_heads, 3);
  EXPECT_EQ(model->config.head_dim, 64);
  EXPECT_EQ(model->config.vocab_size, 49152);
  EXPECT_EQ(model->config.rope_theta, 100000.0);
  EXPECT_EQ(model->num_parameters, 134515008);
  // <|endoftext|> and <|im_end|>: the metadata names the second alone.
  EXPECT_THAT(model->eos_token_ids, ElementsAre(0, 2));
  EXPECT_TRUE(model->chat_template.has_value());
  EXPECT_NE(model->tokenizer, nullptr);
}

}  // namespace
}  // namespace headroom::models
