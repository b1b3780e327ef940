// headroom tokenize: text to ids, or ids to text.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>

#include "models/loaded_model.h"
#include "server/cli/cli.h"
#include "server/cli/commands.h"
#include "server/cli/common_flags.h"

namespace headroom::server {
namespace {

struct TokenizeFlags {
  std::string model;
  std::string text;
  std::string file;
  std::string ids;
  bool special = false;
  bool bos = false;
  bool pieces = false;
};

int Decode(const models::Tokenizer& tokenizer, const TokenizeFlags& flags) {
  auto ids = ParseNumbers(flags.ids, "--ids");
  if (!ids.ok()) {
    return ReportError(ids.status());
  }
  models::IncrementalDetokenizer detokenizer(tokenizer);
  std::string text;
  for (int64_t id : *ids) {
    if (id < 0 || id >= tokenizer.vocab_size()) {
      return ReportError(InvalidArgument("--ids: got {}, wanted 0 to {}", id,
                                         tokenizer.vocab_size() - 1));
    }
    text += detokenizer.Add(static_cast<int32_t>(id));
  }
  text += detokenizer.Flush();
  text += '\n';
  std::fwrite(text.data(), 1, text.size(), stdout);
  return kExitOk;
}

int Tokenize(const TokenizeFlags& flags) {
  const int given = (flags.text.empty() ? 0 : 1) + (flags.file.empty() ? 0 : 1) +
                    (flags.ids.empty() ? 0 : 1);
  if (flags.model.empty() || given != 1) {
    return ReportError(
        InvalidArgument("wanted a model and one of --text, --file and --ids"));
  }
  auto model = models::LoadModel(flags.model);
  if (!model.ok()) {
    return ReportError(model.status());
  }
  if (model->tokenizer == nullptr) {
    return ReportError(InvalidArgument("{} has no tokenizer", flags.model));
  }
  if (!flags.ids.empty()) {
    return Decode(*model->tokenizer, flags);
  }
  std::string text = flags.text;
  if (!flags.file.empty()) {
    std::ifstream file(flags.file, std::ios::binary);
    if (!file) {
      return ReportError(NotFound("--file: cannot open {}", flags.file));
    }
    text.assign(std::istreambuf_iterator<char>(file), {});
  }
  const auto ids = model->tokenizer->Encode(text, flags.bos, flags.special);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (flags.pieces) {
      const std::string_view piece = model->tokenizer->TokenPiece(ids[i]);
      std::printf("%d\t%.*s\n", ids[i], static_cast<int>(piece.size()), piece.data());
    } else {
      std::printf("%s%d", i > 0 ? "," : "", ids[i]);
    }
  }
  if (!flags.pieces) {
    std::printf("\n");
  }
  std::fprintf(stderr, "%zu tokens\n", ids.size());
  return kExitOk;
}

}  // namespace

CommandRunner AddTokenizeCommand(CLI::App* command) {
  auto flags = std::make_shared<TokenizeFlags>();
  command->add_option("model", flags->model, "GGUF file or builtin:NAME");
  command->add_option("--text", flags->text, "text to encode");
  command->add_option("--file", flags->file, "file to encode");
  command->add_option("--ids", flags->ids, "ids to decode: 1,2,3");
  command->add_flag("--special", flags->special, "spellings of control tokens become the tokens");
  command->add_flag("--bos", flags->bos, "put the BOS token in front");
  command->add_flag("--pieces", flags->pieces, "one token a line, with its piece");
  return [flags] { return Tokenize(*flags); };
}

}  // namespace headroom::server
