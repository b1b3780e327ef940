// headroom generate: one prompt, streamed to stdout; progress and the receipt go to stderr.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>

#include "base/clock.h"
#include "server/cli/cli.h"
#include "server/cli/commands.h"
#include "server/cli/common_flags.h"
#include "server/cli/flag_sources.h"
#include "server/cli/kv_trace_json.h"
#include "server/generation_service.h"
#include "server/runtime.h"

namespace headroom::server {
namespace {

struct GenerateFlags {
  RuntimeFlags runtime;
  BudgetFlags budget;
  std::string prompt;
  std::string prompt_file;
  std::string system;
  std::string ids;
  std::string kv_trace;
  bool raw = false;
  bool quiet = false;
  int64_t max_tokens = 256;
  double temperature = 0.0;
  double top_p = 1.0;
  int64_t top_k = 0;
  double min_p = 0.0;
  int64_t seed = 0;
  bool ignore_eos = false;
  std::vector<std::string> stop;
};

models::Value Message(const std::string& role, const std::string& text) {
  return models::Value::Dict({{"role", models::Value::MessageString(role)},
                              {"content", models::Value::MessageString(text)}});
}

StatusOr<std::string> PromptText(const GenerateFlags& flags) {
  if (flags.prompt_file.empty()) {
    return flags.prompt;
  }
  std::ifstream file(flags.prompt_file, std::ios::binary);
  if (!file) {
    return NotFound("--prompt-file: cannot open {}", flags.prompt_file);
  }
  return std::string{std::istreambuf_iterator<char>(file), {}};
}

StatusOr<GenerationRequest> MakeRequest(const GenerateFlags& flags, const Runtime& runtime) {
  GenerationRequest request;
  const int given = (flags.prompt.empty() ? 0 : 1) + (flags.prompt_file.empty() ? 0 : 1) +
                    (flags.ids.empty() ? 0 : 1);
  if (given != 1) {
    return InvalidArgument("wanted one of --prompt, --prompt-file and --ids");
  }
  HEADROOM_ASSIGN_OR_RETURN(const std::string text, PromptText(flags));
  if (!flags.ids.empty()) {
    HEADROOM_ASSIGN_OR_RETURN(auto ids, ParseNumbers(flags.ids, "--ids"));
    request.prompts.emplace_back(TokenPrompt{std::move(ids)});
  } else if (flags.raw || runtime.chat_template() == nullptr) {
    request.prompts.emplace_back(TextPrompt{text});
  } else {
    models::ValueList messages;
    if (!flags.system.empty()) {
      messages.push_back(Message("system", flags.system));
    }
    messages.push_back(Message("user", text));
    ChatPrompt chat;
    chat.messages = models::Value::List(std::move(messages));
    request.prompts.emplace_back(std::move(chat));
  }
  request.max_tokens = flags.max_tokens;
  request.temperature = flags.temperature;
  request.top_p = flags.top_p;
  request.top_k = flags.top_k;
  request.min_p = flags.min_p;
  request.seed = flags.seed;
  request.stop = flags.stop;
  request.ignore_eos = flags.ignore_eos;
  request.trace_kv = !flags.kv_trace.empty();
  HEADROOM_ASSIGN_OR_RETURN(request.body_budget, ToBudgetFields(flags.budget));
  return request;
}

// Prints events as they come; the terminal one is returned.
class Printer {
 public:
  Printer(const GenerateFlags& flags, bool ids_only, const Clock& clock)
      : flags_(flags), ids_only_(ids_only), clock_(clock), start_ns_(clock.NowNs()) {}

  void Show(const engine::RequestEvent& event) {
    if (event.kind == engine::RequestEvent::Kind::kProgress) {
      if (!flags_.quiet && event.rows_total > 0) {
        // A terminal's line is written over; elsewhere each step is a line.
        std::fprintf(stderr, "%sreading the prompt: %lld of %lld rows%s",
                     is_terminal_ ? "\r" : "",
                     static_cast<long long>(event.rows_done),
                     static_cast<long long>(event.rows_total), is_terminal_ ? "" : "\n");
        shows_progress_ = is_terminal_;
      }
      return;
    }
    if (shows_progress_) {
      std::fprintf(stderr, "\r\033[K");
      shows_progress_ = false;
    }
    if (first_token_ns_ == 0 && !event.tokens.empty()) {
      first_token_ns_ = clock_.NowNs();
    }
    num_tokens_ += static_cast<int64_t>(event.tokens.size());
    if (ids_only_) {
      for (const engine::SampledToken& token : event.tokens) {
        std::printf("%s%d", num_printed_++ > 0 ? "," : "", token.token);
      }
    } else {
      std::fwrite(event.text.data(), 1, event.text.size(), stdout);
    }
    std::fflush(stdout);
  }

  void Summary(const engine::RequestEvent& end) const {
    std::printf("\n");
    if (flags_.quiet) {
      return;
    }
    const double prefill_s = static_cast<double>(first_token_ns_ - start_ns_) * 1e-9;
    const double decode_s = static_cast<double>(clock_.NowNs() - first_token_ns_) * 1e-9;
    std::fprintf(stderr,
                 "prompt %lld tokens in %.2f s (%.0f tok/s), answer %lld tokens (%.1f tok/s)\n",
                 static_cast<long long>(end.usage.prompt_tokens), prefill_s,
                 static_cast<double>(end.usage.prompt_tokens) / std::max(prefill_s, 1e-9),
                 static_cast<long long>(end.usage.completion_tokens),
                 static_cast<double>(num_tokens_ - 1) / std::max(decode_s, 1e-9));
    const engine::KvReceipt& kv = end.receipt;
    std::string reasons;
    for (const std::string& reason : kv.reasons) {
      reasons += (reasons.empty() ? " (" : ", ") + reason;
    }
    reasons += reasons.empty() ? "" : ")";
    std::fprintf(stderr, "kv %s: kept %lld of %lld entries, %.1f of %.1f MiB, %lld pages%s\n",
                 kv.policy.c_str(), static_cast<long long>(kv.entries),
                 static_cast<long long>(kv.entries_full),
                 static_cast<double>(kv.bytes) / (1 << 20),
                 static_cast<double>(kv.bytes_full) / (1 << 20),
                 static_cast<long long>(kv.pages), reasons.c_str());
  }

 private:
  const GenerateFlags& flags_;
  const bool ids_only_;
  const Clock& clock_;
  const int64_t start_ns_;
  int64_t first_token_ns_ = 0;
  int64_t num_tokens_ = 0;
  int64_t num_printed_ = 0;
  const bool is_terminal_ = ::isatty(STDERR_FILENO) == 1;
  bool shows_progress_ = false;
};

int Generate(GenerateFlags& flags) {
  if (const Status ok = FinishRuntimeFlags(flags.runtime); !ok.ok()) {
    return ReportError(ok);
  }
  if (!flags.kv_trace.empty()) {  // before any work, not after it
    if (const Status ok = CheckKvTraceFile(flags.kv_trace); !ok.ok()) {
      return ReportError(ok);
    }
  }
  SteadyClock clock;
  auto runtime = Runtime::Create(flags.runtime.options, clock);
  if (!runtime.ok()) {
    return ReportError(runtime.status());
  }
  auto request = MakeRequest(flags, **runtime);
  if (!request.ok()) {
    return ReportError(request.status());
  }
  GenerationService service(**runtime, clock);
  (*runtime)->loop().Start();
  Printer printer(flags, (*runtime)->tokenizer() == nullptr, clock);
  auto submitted = service.Submit(*request, {});
  if (const auto* error = std::get_if<ApiError>(&submitted)) {
    return ReportError(InvalidArgument("{}: {}", error->code, error->message));
  }
  engine::EventStream& stream = *std::get<Submission>(submitted).choices[0].stream;
  for (;;) {
    const engine::RequestEvent event = stream.Wait();
    if (event.kind == engine::RequestEvent::Kind::kFailed) {
      return ReportError(event.status);
    }
    printer.Show(event);
    if (event.kind == engine::RequestEvent::Kind::kFinished) {
      printer.Summary(event);
      if (event.kv_trace.has_value()) {
        const Status written = WriteKvTrace(flags.kv_trace, *event.kv_trace, event.receipt);
        if (!written.ok()) {
          return ReportError(written);
        }
      }
      return kExitOk;
    }
  }
}

}  // namespace

CommandRunner AddGenerateCommand(CLI::App* command) {
  auto flags = std::make_shared<GenerateFlags>();
  AddRuntimeFlags(command, &flags->runtime);
  flags->runtime.log_level = "warning";
  command->add_option("-p,--prompt", flags->prompt,
                      "the user's message; plain text for a model without a chat template");
  command->add_option("--prompt-file", flags->prompt_file, "read it from a file");
  command->add_option("--ids", flags->ids, "the prompt as token ids: 1,2,3");
  command->add_flag("--raw", flags->raw, "no chat template: continue the text");
  command->add_option("--system", flags->system, "a system message in front");
  command->add_option("-n,--max-tokens", flags->max_tokens, "longest answer")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 30));
  command->add_option("--temperature", flags->temperature, "0: greedy")
      ->capture_default_str()
      ->check(FiniteDecimal());
  command->add_option("--top-p", flags->top_p, "sample among the likeliest tokens of this mass")
      ->capture_default_str()
      ->check(FiniteDecimal());
  command->add_option("--top-k", flags->top_k, "0: off")->capture_default_str();
  command->add_option("--min-p", flags->min_p, "drop tokens below this share of the likeliest")
      ->capture_default_str()
      ->check(FiniteDecimal());
  command->add_option("--seed", flags->seed, "of the sampler")->capture_default_str();
  command->add_option("--stop", flags->stop, "a string that ends the answer; may be repeated");
  command->add_flag("--ignore-eos", flags->ignore_eos, "go on after the model's end token");
  command->add_option("--kv-trace", flags->kv_trace,
                      "write the kept positions of every layer and KV head to this JSON file");
  command->add_flag("--quiet", flags->quiet, "nothing on stderr but errors");
  AddBudgetFlags(command, &flags->budget);
  return [flags] { return Generate(*flags); };
}

}  // namespace headroom::server
