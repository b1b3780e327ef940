// headroom inspect: what a model's files hold, without packing anything.
#include <cstdio>
#include <map>
#include <memory>

#include "models/loaded_model.h"
#include "server/cli/cli.h"
#include "server/cli/commands.h"

namespace headroom::server {
namespace {

struct InspectFlags {
  std::string model;
  bool tensors = false;
};

void PrintTensor(const std::string& name, const TensorView& view) {
  std::printf("  %-40s %-5s [%lld, %lld]\n", name.c_str(), GetDTypeInfo(view.dtype).name,
              static_cast<long long>(view.rows), static_cast<long long>(view.cols));
}

template <typename Visit>
void VisitTensors(const models::ModelWeights& weights, const Visit& visit) {
  visit("embed_tokens", weights.embed_tokens);
  if (weights.lm_head.data != weights.embed_tokens.data) {
    visit("lm_head", weights.lm_head);
  }
  visit("final_norm", weights.final_norm);
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const models::LayerWeights& layer = weights.layers[i];
    const std::string prefix = fmt::format("layers.{}.", i);
    visit(prefix + "input_norm", layer.input_norm);
    visit(prefix + "q_proj", layer.q_proj);
    visit(prefix + "k_proj", layer.k_proj);
    visit(prefix + "v_proj", layer.v_proj);
    visit(prefix + "o_proj", layer.o_proj);
    visit(prefix + "post_attention_norm", layer.post_attention_norm);
    visit(prefix + "gate_proj", layer.gate_proj);
    visit(prefix + "up_proj", layer.up_proj);
    visit(prefix + "down_proj", layer.down_proj);
  }
}

void PrintConfig(const models::LoadedModel& model) {
  const models::ModelConfig& config = model.config;
  std::printf("name                 %s\n", model.name.c_str());
  std::printf("architecture         %s\n", config.architecture.c_str());
  std::printf("parameters           %lld\n", static_cast<long long>(model.num_parameters));
  std::printf("layers               %d\n", config.num_hidden_layers);
  std::printf("hidden, intermediate %d, %d\n", config.hidden_size, config.intermediate_size);
  std::printf("heads, KV heads      %d, %d of head_dim %d\n", config.num_attention_heads,
              config.num_key_value_heads, config.head_dim);
  std::printf("vocabulary           %d\n", config.vocab_size);
  std::printf("context              %d\n", config.max_position_embeddings);
  std::printf("rope theta           %g\n", config.rope_theta);
  std::printf("tied embeddings      %s\n", config.tie_word_embeddings ? "yes" : "no");
  std::printf("KV entries a token   %lld (%lld bytes in bf16)\n",
              static_cast<long long>(config.num_hidden_layers) * config.num_key_value_heads,
              static_cast<long long>(config.num_hidden_layers) * config.kv_width() * 4);
}

void PrintTokenizer(const models::LoadedModel& model) {
  if (model.tokenizer == nullptr) {
    std::printf("tokenizer            none: token ids only\n");
    return;
  }
  const models::Tokenizer& tokenizer = *model.tokenizer;
  std::printf("tokenizer            %d pieces, BOS %d (%s), EOS %d\n", tokenizer.vocab_size(),
              tokenizer.bos_id(), tokenizer.add_bos() ? "added" : "not added", tokenizer.eos_id());
  std::string ids;
  for (int32_t id : model.eos_token_ids) {
    ids += fmt::format("{}{} {}", ids.empty() ? "" : ", ", id, tokenizer.TokenPiece(id));
  }
  std::printf("ends at              %s\n", ids.c_str());
  std::printf("chat template        %s\n",
              model.chat_template.has_value()
                  ? fmt::format("{} bytes", model.chat_template->size()).c_str()
                  : "none");
}

int Inspect(const InspectFlags& flags) {
  if (flags.model.empty()) {
    return ReportError(InvalidArgument("model: wanted a file, a directory or builtin:NAME"));
  }
  auto model = models::LoadModel(flags.model);
  if (!model.ok()) {
    return ReportError(model.status());
  }
  PrintConfig(*model);
  PrintTokenizer(*model);
  std::map<std::string, std::pair<int64_t, int64_t>> by_dtype;  // tensors, bytes
  VisitTensors(model->weights, [&](const std::string&, const TensorView& view) {
    auto& [count, bytes] = by_dtype[GetDTypeInfo(view.dtype).name];
    ++count;
    bytes += view.num_bytes();
  });
  for (const auto& [dtype, sums] : by_dtype) {
    std::printf("weights %-12s %lld tensors, %.1f MiB\n", dtype.c_str(),
                static_cast<long long>(sums.first), static_cast<double>(sums.second) / (1 << 20));
  }
  if (flags.tensors) {
    VisitTensors(model->weights, PrintTensor);
  }
  return kExitOk;
}

}  // namespace

CommandRunner AddInspectCommand(CLI::App* command) {
  auto flags = std::make_shared<InspectFlags>();
  command->add_option("model", flags->model, "GGUF file, Hugging Face directory, or builtin:NAME");
  command->add_flag("--tensors", flags->tensors, "list every tensor");
  return [flags] { return Inspect(*flags); };
}

}  // namespace headroom::server
